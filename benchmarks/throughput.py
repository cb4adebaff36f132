"""Throughput: output without a terminal through a session, against bare aiodocker reads; and the host's memory."""

import sys
from typing import Final

from benchmarks.child import output_of
from benchmarks.results import Benchmark, Series, at_least, at_most, versus
from benchmarks.rounds import Contender, Plan, interleaved
from benchmarks.throughput_run import COMMANDS, Measured

ROUNDS = 10
MEMORY_ROUNDS = 3
TARGET = 0.8
FLAT_MIB = 8
"""How much more a run of three times the output may use, and still be called flat."""
_MIB: Final = 2**20
_KINDS: Final = {"zeros": "one endless line", "lines": "lines"}


async def measure(plan: Plan) -> Benchmark:
    """Measure speed for each kind of output, and memory for two sizes."""
    size_mib = 8 if plan.quick else 100
    memory = {f"session, {mib} MiB": Series(unit="MiB") for mib in (size_mib, 3 * size_mib)}
    memory |= {f"bare aiodocker, {size_mib} MiB": Series(unit="MiB")}
    dropped: list[int] = []
    contenders: dict[str, Contender] = {}
    for kind in COMMANDS:
        ours, bare = memory[f"session, {size_mib} MiB"], memory[f"bare aiodocker, {size_mib} MiB"]
        contenders[f"session, {kind}"] = _speed("session", kind, size_mib, ours, dropped)
        contenders[f"bare aiodocker, {kind}"] = _speed("bare", kind, size_mib, bare, [])
    series = await interleaved(plan, contenders, rounds=plan.rounds(ROUNDS), unit="MiB/s")
    long = _speed("session", "zeros", 3 * size_mib, memory[f"session, {3 * size_mib} MiB"], dropped)
    series |= await interleaved(
        plan, {f"session, zeros, {3 * size_mib} MiB": long}, rounds=plan.rounds(MEMORY_ROUNDS), unit="MiB/s"
    )
    figures = []
    for kind, words in _KINDS.items():
        ours, bare = series[f"session, {kind}"], series[f"bare aiodocker, {kind}"]
        name = f"{size_mib} MiB without a terminal ({words}) through `Window`, against bare aiodocker"
        figures.append(at_least(name, TARGET, ours.ratio_to(bare), unit=" times", detail=versus(ours, bare)))
    short_peak, long_peak = (memory[f"session, {mib} MiB"].median for mib in (size_mib, 3 * size_mib))
    if short_peak is not None and long_peak is not None:
        name = f"host memory: what {3 * size_mib} MiB of output takes more than {size_mib} MiB"
        detail = f"peak growth {long_peak:.1f} and {short_peak:.1f} MiB"
        figures.append(at_most(name, FLAT_MIB, round(long_peak - short_peak, 1), unit=" MiB", detail=detail))
    notes = {"bytes_dropped": dropped}
    peaks = {f"peak growth: {name}": peak for name, peak in memory.items() if peak.good}
    return Benchmark(name="throughput", series=series | peaks, figures=figures, notes=notes)


def _speed(who: str, kind: str, size_mib: int, memory: Series, dropped: list[int]) -> Contender:
    async def once() -> float:
        measured = await _run(who, kind, size_mib * _MIB)
        if measured.growth_bytes is not None:
            memory.samples.append(measured.growth_bytes / _MIB)
        dropped.append(measured.bytes_dropped)
        return size_mib / measured.seconds

    return once


async def _run(who: str, kind: str, size_bytes: int) -> Measured:
    output = await output_of(sys.executable, "-m", "benchmarks.throughput_run", who, kind, str(size_bytes))
    return Measured.model_validate_json(output)
