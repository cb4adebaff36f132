"""Cell: a round trip in a live Python session, against jupyter_client used inside the same kind of container."""

import time
from contextlib import AsyncExitStack

import aiodocker

from aeolus_sandbox import CodeInterpreterInput, CodeInterpreterTool, SessionManager
from benchmarks.results import Benchmark, at_most, versus
from benchmarks.rounds import Contender, Plan, interleaved
from benchmarks.stock_kernel import StockKernel, stock_kernel

ROUNDS = 150
TARGET = 1.3
CELLS = {"1+1": "2", "print('x')": "x\n"}
"""Cells, and what each must give."""


async def measure(plan: Plan) -> Benchmark:
    """Measure each cell in one kept session and in one stock kernel."""
    contenders: dict[str, Contender] = {}
    async with AsyncExitStack() as stack:
        manager = await stack.enter_async_context(SessionManager())
        docker = await stack.enter_async_context(aiodocker.Docker())
        inside = await stack.enter_async_context(stock_kernel(docker))
        for code, wanted in CELLS.items():
            contenders[f"session, {code}"] = _session(manager, code, wanted)
            contenders[f"jupyter_client inside, {code}"] = _inside(inside, code)
        series = await interleaved(plan, contenders, rounds=plan.rounds(ROUNDS), warm_up=5)
    figures = []
    for code in CELLS:
        ours, theirs = series[f"session, {code}"], series[f"jupyter_client inside, {code}"]
        name = f"Python cell `{code}` in a live session, against jupyter_client inside the container"
        figures.append(
            at_most(name, TARGET, ours.ratio_to(theirs), unit=" times", detail=versus(ours, theirs))
        )
    return Benchmark(name="cell", series=series, figures=figures)


def _session(manager: SessionManager, code: str, wanted: str) -> Contender:
    tool = CodeInterpreterTool()

    async def once() -> float:
        began = time.perf_counter()
        async with await manager.open(tool, CodeInterpreterInput(code=code, session_id="bench")) as session:
            content = "".join([chunk.content async for chunk in session])
            result = await session.finalize()
            took = time.perf_counter() - began
        assert result.success, result
        assert content == wanted, content
        return took * 1000

    return once


def _inside(kernel: StockKernel, code: str) -> Contender:
    async def once() -> float:
        return await kernel.run(code) * 1000

    return once
