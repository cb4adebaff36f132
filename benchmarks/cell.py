"""Cell: a round trip in a live Python session, against jupyter_client used inside the same kind of container."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiodocker
from aiodocker.stream import Stream

from aeolus_sandbox import CodeInterpreterInput, CodeInterpreterTool, SessionManager
from benchmarks.bare import config_of, started
from benchmarks.results import Benchmark, at_most, versus
from benchmarks.rounds import Contender, Plan, interleaved

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
        inside = await stack.enter_async_context(_stock_kernel(docker))
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


class _Lines:
    """The lines of an attached stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._held = b""

    async def next(self) -> str:
        while b"\n" not in self._held:
            message = await self._stream.read_out()
            if message is None:
                msg = f"the program in the container has ended: {self._held!r}"
                raise RuntimeError(msg)
            self._held += message.data
        line, _, self._held = self._held.partition(b"\n")
        return line.decode()

    async def send(self, line: str) -> None:
        await self._stream.write_in(line.encode() + b"\n")


@asynccontextmanager
async def _stock_kernel(docker: aiodocker.Docker) -> AsyncIterator[_Lines]:
    program = Path(__file__).with_name("jupyter_inside.py").read_text("utf-8")
    config = config_of("python", ("python3", "-c", program), tty=False)
    async with started(docker, config) as stream:
        lines = _Lines(stream)
        async with asyncio.timeout(90):
            said = await lines.next()
        if said != '"ready"':
            msg = f"the stock kernel did not start: {said}"
            raise RuntimeError(msg)
        yield lines


def _inside(lines: _Lines, code: str) -> Contender:
    async def once() -> float:
        await lines.send(json.dumps(code))
        return float(json.loads(await lines.next())) * 1000

    return once
