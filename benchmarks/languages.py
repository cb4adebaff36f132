"""Languages: what a kernel of each costs, from nothing to its first output, and in a session that lives."""

import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Final

from aeolus_sandbox import CodeInterpreterInput, CodeInterpreterTool, SessionManager
from benchmarks.results import Benchmark, Figure, Series, at_most
from benchmarks.rounds import Contender, Plan, interleaved

NEW_ROUNDS: Final = 7
CELL_ROUNDS: Final = 60
READY_TARGETS_MS: Final = {"bash": 1000.0}
CELL_TARGETS_MS: Final = {"bash": 10.0}
CELLS: Final = {
    "python": "print('x')",
    "javascript": "console.log('x')",
    "typescript": "const x: string = 'x'; console.log(x)",
    "bash": "echo x",
    "r": "cat('x\\n')",
    "wasm": """(module (import "wasi_snapshot_preview1" "fd_write" (func $w (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1) (data (i32.const 16) "x\\n")
      (func (export "_start") (i32.store (i32.const 0) (i32.const 16)) (i32.store (i32.const 4) (i32.const 2))
        (drop (call $w (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))""",
}
"""A cell that prints `x` and a line end, in each language."""
PLOTS: Final = {"python": "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()", "r": "plot(1:3)"}
_TOOL: Final = CodeInterpreterTool()


async def measure(plan: Plan) -> Benchmark:
    """Measure the languages side by side: new kernels first, then cells in kernels that live."""
    async with AsyncExitStack() as stack:
        manager = await stack.enter_async_context(SessionManager())
        new = {f"ready, {language}": _ready(manager, language) for language in CELLS}
        new |= {f"first output, {language}": _first_output(manager, language) for language in CELLS}
        new |= {f"first plot, {language}": _first_plot(manager, language) for language in PLOTS}
        series = await interleaved(plan, new, rounds=plan.rounds(NEW_ROUNDS))
        cells = {f"cell, {language}": _cell(manager, language) for language in CELLS}
        series |= await interleaved(plan, cells, rounds=plan.rounds(CELL_ROUNDS), warm_up=3)
    return Benchmark(name="languages", series=series, figures=list(_figures(series)))


def _figures(series: dict[str, Series]) -> Iterator[Figure]:
    for language in CELLS:
        ready, first = series[f"ready, {language}"], series[f"first output, {language}"]
        yield _figure(
            f"{language}: from nothing to a kernel that is ready", ready, READY_TARGETS_MS.get(language)
        )
        yield _figure(f"{language}: from a ready kernel to its first output", first, None)
        cell = series[f"cell, {language}"]
        yield _figure(f"{language}: a cell in a live session", cell, CELL_TARGETS_MS.get(language))
        if language in PLOTS:
            yield _figure(f"{language}: the first plot of a kernel", series[f"first plot, {language}"], None)


def _figure(name: str, series: Series, target_ms: float | None) -> Figure:
    detail = "" if series.p95 is None else f"p95 {_ms(series.p95)}"
    if target_ms is not None:
        return at_most(name, target_ms, series.median, unit=" ms", detail=detail)
    shown = "not measured" if series.median is None else f"{_ms(series.median)} ({detail})"
    return Figure(name=name, target="-", measured=shown, value=series.median, met=None)


def _ms(value: float) -> str:
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


async def _run(manager: SessionManager, language: str, code: str, session_id: str | None) -> str:
    asked = CodeInterpreterInput(code=code, language=language, session_id=session_id)
    async with await manager.open(_TOOL, asked) as session:
        printed = "".join([chunk.content async for chunk in session if chunk.stream != "status"])
        result = await session.finalize()
    assert result.success, result
    return printed


def _ready(manager: SessionManager, language: str) -> Contender:
    async def once() -> float:
        began = time.perf_counter()
        async with await manager.open(_TOOL, CodeInterpreterInput(code="", language=language)) as session:
            took = time.perf_counter() - began  # a session is open once its kernel is ready
            await session.finalize()
        return took * 1000

    return once


def _first_output(manager: SessionManager, language: str) -> Contender:
    async def once() -> float:
        session_id = f"first-{language}-{time.monotonic_ns()}"
        await _run(manager, language, "", session_id)
        began = time.perf_counter()
        asked = CodeInterpreterInput(code=CELLS[language], language=language, session_id=session_id)
        async with await manager.open(_TOOL, asked) as session:
            chunk = await session.next_chunk()
            took = time.perf_counter() - began
            assert chunk is not None
            assert chunk.content == "x\n", chunk
        await manager.kept.close(_TOOL.name, session_id)
        return took * 1000

    return once


def _first_plot(manager: SessionManager, language: str) -> Contender:
    async def once() -> float:
        session_id = f"plot-{language}-{time.monotonic_ns()}"
        await _run(manager, language, CELLS[language], session_id)
        began = time.perf_counter()
        image = await _run(manager, language, PLOTS[language], session_id)
        took = time.perf_counter() - began
        assert image
        await manager.kept.close(_TOOL.name, session_id)
        return took * 1000

    return once


def _cell(manager: SessionManager, language: str) -> Contender:
    async def once() -> float:
        began = time.perf_counter()
        printed = await _run(manager, language, CELLS[language], f"bench-{language}")
        took = time.perf_counter() - began
        assert printed == "x\n", printed
        return took * 1000

    return once
