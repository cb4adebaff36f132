"""What this library does where its peers do the same: see `peers`."""

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from typing import Final

from aeolus_sandbox import (
    CodeInterpreterInput,
    CodeInterpreterTool,
    SessionManager,
    TerminalInput,
    TerminalTool,
)
from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from benchmarks import first_cells
from benchmarks.bare import GREETING
from benchmarks.bursts import burst, session_opening
from benchmarks.child import output_of
from benchmarks.first_chunk import Work, cell, expect, parked, rested
from benchmarks.results import Series
from benchmarks.rounds import Contender
from benchmarks.throughput_run import Measured

_POLL_S: Final = 0.01
_MIB: Final = 2**20
_TOOL: Final = CodeInterpreterTool()


class Ours:
    """Contenders of this library, by what they do; the terminal's run on the peers' image."""

    def __init__(
        self, plain: SessionManager, pooled: SessionManager, engine: DockerEngine, image: str
    ) -> None:
        self._plain = plain
        self._pooled = pooled
        self._engine = engine
        self._work = Work(TerminalTool(image=image), TerminalInput(command=GREETING), "hello")
        self.lives = Series(unit="ms")

    async def prepare(self) -> None:
        """Have what the warm contenders take wait in the pool, and open the sessions that are kept."""
        for work in (self._work, cell("python")):
            await self._pooled.pool.keep(work.tool, work.tool_input, minimum=1)
        await self._pooled.pool.wait_filled()
        for ability in ("command", "cell"):
            await self.timed()[ability]()

    def rested(self, contender: Contender) -> Contender:
        """Return a contender before whose sample the pool is full: its refill is in nobody's way."""
        return rested(contender, self._pooled)

    def timed(self) -> Mapping[str, Contender]:
        """Return those whose sample is a time, by ability."""
        return {
            "cold": self._cold,
            "warm_command": parked(self._pooled, self._work),
            "warm_code": parked(self._pooled, cell("python")),
            "first_cell": first_cells.cold_first_cell(self._plain),
            "command": self._command,
            "cell": first_cells.live_cell(self._plain),
        }

    def output(self, size: int, memory: Series) -> Contender:
        """Return the speed of output through a session, in MiB/s; `memory` takes by how much the process grew."""

        async def once() -> float:
            # The others' containers may use every processor: the command that writes is not to be the limit here.
            words = ("benchmarks.throughput_run", "window", "zeros", str(size), str(os.cpu_count() or 1))
            argv = (sys.executable, "-m", *words)
            measured = Measured.model_validate_json(await output_of(*argv))
            if measured.growth_bytes is not None:
                memory.samples.append(measured.growth_bytes / _MIB)
            return size / _MIB / measured.seconds

        return once

    def burst(self, count: int) -> Contender:
        """Return the time until the last of so many sessions has its first output, in seconds."""

        async def once() -> float:
            return max(await burst(session_opening(self._plain, self._work), count))

        return once

    async def _cold(self) -> float:
        others = await self._containers()
        began = time.perf_counter()
        async with await self._plain.open(self._work.tool, self._work.tool_input) as session:
            await expect(session, self._work)
            took = time.perf_counter() - began
            await session.finalize()
        while await self._containers() - others:
            await asyncio.sleep(_POLL_S)
        self.lives.samples.append((time.perf_counter() - began) * 1000)
        return took * 1000

    async def _containers(self) -> set[str]:
        return {each.id for each in await self._engine.list_containers({OWNER_LABEL: self._plain.owner})}

    async def _command(self) -> float:
        began = time.perf_counter()
        asked = CodeInterpreterInput(code=GREETING, language="bash", session_id="bench-bash")
        async with await self._plain.open(_TOOL, asked) as session:
            said = "".join([chunk.content async for chunk in session if chunk.stream != "status"])
            await session.finalize()
        took = time.perf_counter() - began
        assert said == "hello\n", said
        return took * 1000
