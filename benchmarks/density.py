"""Density: how many idle sessions fit into a machine, and what each of them costs while nothing happens."""

import sys
from collections.abc import Iterator
from typing import Final

from benchmarks.child import output_of
from benchmarks.density_run import Measured
from benchmarks.results import Benchmark, Figure, Series, at_most
from benchmarks.rounds import Contender, Plan, interleaved

MEMORY_GIB: Final = 4
HOST_TARGET_KIB: Final = 100
CPU_TARGET_PERCENT: Final = 1
KINDS: Final = {
    "shells": ("parked shells", 200, 20.0),
    "sessions": ("open terminal sessions", 40, 5.0),
    "kernels": ("parked Python kernels", 8, 10.0),
}
"""What is idle: in words, how many of them, and for how many seconds they are watched."""
_QUICK_COUNT: Final = 3
_QUICK_S: Final = 2.0
_KIB: Final = 2**10
_MIB: Final = 2**20
_GIB: Final = 2**30


async def measure(plan: Plan) -> Benchmark:
    """Measure each kind once: what one costs is a mean over many of them already."""
    taken: dict[str, Measured] = {}
    series: dict[str, Series] = {}
    for kind, (words, usual_count, usual_s) in KINDS.items():
        count, seconds = (_QUICK_COUNT, _QUICK_S) if plan.quick else (usual_count, usual_s)
        name = f"memory of one of {count} {words}"
        once = {name: _one(kind, count, seconds, taken)}
        series |= await interleaved(plan, once, rounds=1, unit="MiB", warm_up=0)
    figures = [figure for kind, measured in taken.items() for figure in _figures(kind, measured)]
    notes = {kind: measured.model_dump() for kind, measured in taken.items()}
    return Benchmark(name="density", series=series, figures=figures, notes=notes)


def _one(kind: str, count: int, seconds: float, taken: dict[str, Measured]) -> Contender:
    async def once() -> float:
        output = await output_of(
            sys.executable, "-m", "benchmarks.density_run", kind, str(count), str(seconds)
        )
        taken[kind] = Measured.model_validate_json(output)
        return taken[kind].all_bytes / _MIB

    return once


def _figures(kind: str, measured: Measured) -> Iterator[Figure]:
    words = KINDS[kind][0]
    fit = int(MEMORY_GIB * _GIB // measured.all_bytes)
    yield Figure(
        name=f"{words} that fit into {MEMORY_GIB} GiB",
        target="-",
        measured=f"{fit} ({_in_words(measured)})",
        value=fit,
        met=None,
    )
    many = f"{measured.count} idle {words}"
    host_kib = round(measured.host_bytes / _KIB, 1)
    yield at_most(f"{many}: memory of the host process for each", HOST_TARGET_KIB, host_kib, unit=" KiB")
    host, containers, engine = (
        100 * cpu_s / measured.seconds
        for cpu_s in (measured.host_cpu_s, measured.container_cpu_s, measured.engine_cpu_s)
    )
    name = f"{many}: CPU of the host process and all containers"
    detail = f"host {host:.2f} %, containers {containers:.2f} %; engine besides: {engine:.2f} %"
    if kind == "shells":
        yield at_most(name, CPU_TARGET_PERCENT, round(host + containers, 3), unit=" %", detail=detail)
    else:
        yield Figure(
            name=name,
            target="-",
            measured=f"{host + containers:.3g} % ({detail})",
            value=host + containers,
            met=None,
        )


def _in_words(measured: Measured) -> str:
    parts = {
        "container": measured.container_bytes,
        "shim": measured.shim_bytes,
        "daemons": measured.daemon_bytes,
        "host process": measured.host_bytes,
    }
    each = ", ".join(f"{name} {size / _MIB:.2f}" for name, size in parts.items())
    return f"{measured.all_bytes / _MIB:.2f} MiB each: {each}"
