"""Throughput: output without a terminal through each policy, against aiodocker and the docker CLI; host memory."""

import shutil
import sys
from typing import Final

from benchmarks.child import output_of
from benchmarks.results import Benchmark, Figure, Series, at_least, at_most, versus
from benchmarks.rounds import Contender, Plan, Unavailable, interleaved
from benchmarks.throughput_run import Measured

ROUNDS = 8
MEMORY_ROUNDS = 2
POLICY_ROUNDS = 3
TARGET = 0.9
"""How much of what aiodocker's own stream carries."""
CLI_TARGET = 1.0
FLAT_MIB = 8
"""How much more a run of three times the output may use, and still be called flat."""
KINDS: Final = {"zeros": "one endless line", "lines": "lines"}
_MIB: Final = 2**20
_POLICIES: Final = {"buffer": (100, "Buffer"), "summarise": (32, "Summarise"), "manual": (2, "Manual")}
"""How many MiB each of the others gets: what asks somebody about every piece would take minutes for more."""
_READERS: Final = {"window": "Window", "bare": "bare aiodocker", "cli": "docker CLI"}


async def measure(plan: Plan) -> Benchmark:
    """Measure the policies that nobody compares, then memory for two sizes, then speed side by side."""
    size_mib = 8 if plan.quick else 100
    memory = {name: Series(unit="MiB") for name in _memory_names(size_mib)}
    series = await interleaved(
        plan, _others(plan, memory), rounds=1 if plan.quick else POLICY_ROUNDS, unit="MiB/s", warm_up=0
    )
    long = f"Window, {3 * size_mib} MiB"
    series |= await interleaved(
        plan,
        {f"{long}, zeros": _speed("window", "zeros", 3 * size_mib, memory[long])},
        rounds=1 if plan.quick else MEMORY_ROUNDS,
        unit="MiB/s",
        warm_up=0,
    )
    contenders: dict[str, Contender | Unavailable] = {}
    for kind in KINDS:
        for reader, name in _READERS.items():
            growth = memory.get(f"{name}, {size_mib} MiB")
            contenders[f"{name}, {kind}"] = _speed(reader, kind, size_mib, growth)
        if shutil.which("docker") is None:
            contenders[f"docker CLI, {kind}"] = Unavailable("no docker on the path")
    series |= await interleaved(plan, contenders, rounds=plan.rounds(ROUNDS), unit="MiB/s")
    peaks = {f"peak growth: {name}": peak for name, peak in memory.items() if peak.good}
    figures = [
        *_speed_figures(series, size_mib),
        *_policy_figures(series),
        *_memory_figures(memory, size_mib),
    ]
    return Benchmark(name="throughput", series=series | peaks, figures=figures)


def _memory_names(size_mib: int) -> list[str]:
    sizes = (f"Window, {size_mib} MiB", f"Window, {3 * size_mib} MiB", f"bare aiodocker, {size_mib} MiB")
    return [*sizes, *(name for _, name in _POLICIES.values())]


def _others(plan: Plan, memory: dict[str, Series]) -> dict[str, Contender]:
    return {
        name: _speed(reader, "lines", min(size, 2) if plan.quick else size, memory[name])
        for reader, (size, name) in _POLICIES.items()
    }


def _speed_figures(series: dict[str, Series], size_mib: int) -> list[Figure]:
    figures = []
    for kind, words in KINDS.items():
        ours = series[f"Window, {kind}"]
        for other, target in (("bare aiodocker", TARGET), ("docker CLI", CLI_TARGET)):
            theirs = series[f"{other}, {kind}"]
            name = f"{size_mib} MiB without a terminal ({words}) through `Window`, against {other}"
            detail = versus(ours, theirs)
            figures.append(at_least(name, target, ours.ratio_to(theirs), unit=" times", detail=detail))
    return figures


def _policy_figures(series: dict[str, Series]) -> list[Figure]:
    return [
        Figure(
            name=f"lines without a terminal through `{name}`",
            target="-",
            measured="not measured" if series[name].median is None else f"{series[name].median:.3g} MiB/s",
            value=series[name].median,
            met=None,
        )
        for _, name in _POLICIES.values()
    ]


def _memory_figures(memory: dict[str, Series], size_mib: int) -> list[Figure]:
    short, long = (memory[f"Window, {mib} MiB"].median for mib in (size_mib, 3 * size_mib))
    if short is None or long is None:
        return []
    name = f"host memory: what {3 * size_mib} MiB of output takes more than {size_mib} MiB"
    detail = f"peak growth {long:.1f} and {short:.1f} MiB"
    return [at_most(name, FLAT_MIB, round(long - short, 1), unit=" MiB", detail=detail)]


def _speed(reader: str, kind: str, size_mib: int, memory: Series | None) -> Contender:
    async def once() -> float:
        measured = await _run(reader, kind, size_mib * _MIB)
        if memory is not None and measured.growth_bytes is not None:
            memory.samples.append(measured.growth_bytes / _MIB)
        return measured.bytes_read / _MIB / measured.seconds

    return once


async def _run(reader: str, kind: str, size_bytes: int) -> Measured:
    output = await output_of(
        *(sys.executable, "-m", "benchmarks.throughput_run", reader, kind, str(size_bytes))
    )
    return Measured.model_validate_json(output)
