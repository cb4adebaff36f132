"""Latency: from asking for a session to its first chunk; cold and parked, one by one, staggered and many at once."""

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import aiodocker

from aeolus_sandbox import IsolationMode, PoolSettings, SessionManager
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.hardening import GVISOR_RUNTIME
from benchmarks import first_cells, latency_bursts
from benchmarks.first_chunk import Work, bare, cell, cold, parked, rested, terminal
from benchmarks.languages import CELLS
from benchmarks.results import Benchmark, Figure, Series, at_most, number, versus
from benchmarks.rounds import Contender, Plan, Unavailable, interleaved
from benchmarks.stock_kernel import stock_kernel

TERMINAL_ROUNDS: Final = 8
PYTHON_ROUNDS: Final = 5
LANGUAGE_ROUNDS: Final = 2
COLD_TARGET: Final = 1.1
PARKED_TARGETS_MS: Final = {"terminal": 5.0, "python": 15.0}
LIVE_CELL_TARGET_MS: Final = 9.5
PLOT_TARGET: Final = 1.2
MAX_SESSIONS: Final = 100
_KINDS: Final = {"terminal": True, "pipes": False}
_PLOTS: Final = "first plot"
_IN_GVISOR: Final = ", gVisor"
_NO_GVISOR: Final = Unavailable(f"the engine has no runtime {GVISOR_RUNTIME!r}")


@dataclass(frozen=True, slots=True)
class Sides:
    """What the contenders use: a manager whose pool has what they ask for, one that has none, and bare aiodocker."""

    pooled: SessionManager
    plain: SessionManager
    docker: aiodocker.Docker
    engine: DockerEngine
    has_gvisor: bool


async def measure(plan: Plan) -> Benchmark:
    """Measure terminals, then Python, then the other languages, then bursts."""
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(DockerEngine())
        settings = PoolSettings(refill_concurrency=latency_bursts.REFILL_CONCURRENCY)
        sides = Sides(
            pooled=await stack.enter_async_context(SessionManager(max_sessions=MAX_SESSIONS, pool=settings)),
            plain=await stack.enter_async_context(SessionManager(max_sessions=MAX_SESSIONS)),
            docker=await stack.enter_async_context(aiodocker.Docker()),
            engine=engine,
            has_gvisor=GVISOR_RUNTIME in (await engine.info()).runtimes,
        )
        series = await _terminals(plan, sides)
        series |= await _python(plan, sides)
        series |= await _languages(plan, sides)
        bursts = await latency_bursts.measure(
            plan, sides.pooled, sides.plain, docker=sides.docker, engine=engine
        )
    figures = [*_figures(series), *bursts.figures]
    return Benchmark(name="latency", series=series | bursts.series, figures=figures, notes=bursts.notes)


async def _terminals(plan: Plan, sides: Sides) -> dict[str, Series]:
    works = {name: terminal(tty=tty) for name, tty in _KINDS.items()}
    works[f"terminal{_IN_GVISOR}"] = terminal(isolation=IsolationMode.GVISOR)
    contenders = _cold_and_parked(sides, works)
    contenders |= {f"bare aiodocker, {name}": bare(sides.docker, tty=tty) for name, tty in _KINDS.items()}
    return await _measured(plan, sides, works, contenders, rounds=TERMINAL_ROUNDS)


async def _python(plan: Plan, sides: Sides) -> dict[str, Series]:
    works = {"python": cell("python")}
    async with stock_kernel(sides.docker) as kernel:
        await kernel.run(first_cells.PLOT)  # what is measured against is warm
        await first_cells.live_cell(sides.plain)()  # starts the kernel
        contenders = _cold_and_parked(sides, works) | {
            "cold first cell, python": first_cells.cold_first_cell(sides.plain),
            "cold first cell, stock ipykernel": first_cells.stock_first_cell(sides.docker),
            "cell in a live session, python": first_cells.live_cell(sides.plain),
            f"{_PLOTS}, parked": first_cells.first_plot(sides.pooled),
            f"{_PLOTS}, warm stock ipykernel": first_cells.stock_plot(kernel),
        }
        series = await _measured(plan, sides, works, contenders, rounds=PYTHON_ROUNDS)
    await first_cells.end_live(sides.plain)
    return series


async def _languages(plan: Plan, sides: Sides) -> dict[str, Series]:
    works = {language: cell(language) for language in CELLS if language != "python"}
    works[f"python{_IN_GVISOR}"] = cell("python", isolation=IsolationMode.GVISOR)
    return await _measured(plan, sides, works, _cold_and_parked(sides, works), rounds=LANGUAGE_ROUNDS)


def _cold_and_parked(sides: Sides, works: dict[str, Work]) -> dict[str, Contender | Unavailable]:
    contenders: dict[str, Contender | Unavailable] = {}
    for name, work in works.items():
        there = sides.has_gvisor or not _needs_gvisor(work)
        contenders[f"cold, {name}"] = cold(sides.plain, work) if there else _NO_GVISOR
        contenders[f"parked, {name}"] = parked(sides.pooled, work) if there else _NO_GVISOR
    return contenders


async def _measured(
    plan: Plan,
    sides: Sides,
    works: dict[str, Work],
    contenders: Mapping[str, Contender | Unavailable],
    *,
    rounds: int,
) -> dict[str, Series]:
    """Measure while one container of each kind waits, and none afterwards."""
    kept = [work for work in works.values() if sides.has_gvisor or not _needs_gvisor(work)]
    for work in kept:
        await sides.pooled.pool.keep(work.tool, work.tool_input, minimum=1)
    try:
        quiet = {
            name: each if isinstance(each, Unavailable) else rested(each, sides.pooled)
            for name, each in contenders.items()
        }
        return await interleaved(plan, quiet, rounds=plan.rounds(rounds))
    finally:
        for work in kept:
            await sides.pooled.pool.keep(work.tool, work.tool_input, minimum=0)


def _needs_gvisor(work: Work) -> bool:
    return work.tool.isolation is IsolationMode.GVISOR


def _figures(series: dict[str, Series]) -> Iterator[Figure]:
    for name in _KINDS:
        ours, theirs = series[f"cold, {name}"], series[f"bare aiodocker, {name}"]
        what = f"cold {name}, open to first chunk, against bare aiodocker"
        yield at_most(what, COLD_TARGET, ours.ratio_to(theirs), unit=" times", detail=versus(ours, theirs))
    for name in (*_KINDS, *CELLS):
        yield _time(
            f"parked {name}, open to first chunk", series[f"parked, {name}"], PARKED_TARGETS_MS.get(name)
        )
    for name in CELLS:
        yield _time(f"cold {name}, open to first chunk", series[f"cold, {name}"], None)
    ours, theirs = series["cold first cell, python"], series["cold first cell, stock ipykernel"]
    what = "Python, nothing to the end of the first cell, against a stock ipykernel over ipc"
    yield at_most(what, COLD_TARGET, ours.ratio_to(theirs), unit=" times", detail=versus(ours, theirs))
    live = series["cell in a live session, python"]
    yield _time("Python cell in a live session, open to result", live, LIVE_CELL_TARGET_MS)
    ours, theirs = series[f"{_PLOTS}, parked"], series[f"{_PLOTS}, warm stock ipykernel"]
    what = "first plot of a parked Python kernel, against the same in a warm stock ipykernel"
    yield at_most(what, PLOT_TARGET, ours.ratio_to(theirs), unit=" times", detail=versus(ours, theirs))
    for name in ("terminal", "python"):
        for state in ("cold", "parked"):
            what = f"{state} {name} in gVisor, open to first chunk"
            yield _time(what, series[f"{state}, {name}{_IN_GVISOR}"], None)


def _time(name: str, series: Series, limit_ms: float | None) -> Figure:
    median, p95 = series.median, series.p95
    detail = series.absence or ("" if p95 is None else f"p95 {number(p95)} ms")
    if limit_ms is not None:
        return at_most(name, limit_ms, median, unit=" ms", detail=detail)
    shown = f"{number(median)} ms ({detail})" if median is not None else series.absence or "not measured"
    return Figure(name=name, target="-", measured=shown, value=median, met=None)
