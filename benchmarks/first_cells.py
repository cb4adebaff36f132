"""Contenders for a Python session beyond its first chunk, and the same in a stock ipykernel beside its client."""

import time
from typing import Final

import aiodocker

from aeolus_sandbox import CodeInterpreterInput, CodeInterpreterTool, SessionManager
from benchmarks.bare import started
from benchmarks.first_chunk import PYTHON_CELL
from benchmarks.rounds import Contender
from benchmarks.stock_kernel import StockKernel, stock_config

PLOT: Final = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()"
_TOOL: Final = CodeInterpreterTool()
_LIVE: Final = "bench"


def stock_first_cell(docker: aiodocker.Docker) -> Contender:
    """Return the time from create of a container to the end of the first cell of the kernel in it."""
    config = stock_config()

    async def once() -> float:
        began = time.perf_counter()
        async with started(docker, config) as stream:
            kernel = StockKernel(stream)
            await kernel.wait_ready()
            await kernel.run(PYTHON_CELL)
            return (time.perf_counter() - began) * 1000

    return once


def cold_first_cell(manager: SessionManager) -> Contender:
    """Return the time from `open` of a session to the result of its first cell; the container is made first."""

    async def once() -> float:
        return await _run(manager, PYTHON_CELL, session_id=None, stream="stdout")

    return once


def live_cell(manager: SessionManager) -> Contender:
    """Return the time from `open` to the result of a cell in a kernel that is kept."""

    async def once() -> float:
        return await _run(manager, PYTHON_CELL, session_id=_LIVE, stream="stdout")

    return once


async def end_live(manager: SessionManager) -> None:
    """End the kernel of `live_cell`."""
    await manager.kept.close(_TOOL.name, _LIVE)


def first_plot(manager: SessionManager) -> Contender:
    """Return the time from `open` to the result of a plot in a kernel that has run nothing before."""

    async def once() -> float:
        return await _run(manager, PLOT, session_id=None, stream="image")

    return once


def stock_plot(kernel: StockKernel) -> Contender:
    """Return the time that a plot takes in a stock kernel; the first sample of it warms the kernel up."""

    async def once() -> float:
        return await kernel.run(PLOT) * 1000

    return once


async def _run(manager: SessionManager, code: str, *, session_id: str | None, stream: str) -> float:
    began = time.perf_counter()
    async with await manager.open(_TOOL, CodeInterpreterInput(code=code, session_id=session_id)) as session:
        streams = {chunk.stream async for chunk in session}
        result = await session.finalize()
        took = time.perf_counter() - began
    assert result.success, result
    assert stream in streams, f"the cell gave {streams or 'nothing'}"
    return took * 1000
