"""Tools whose programs can wait in a pool, and what tests of the pool do with them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import ClassVar, Literal

from pydantic import BaseModel

from aeolus_sandbox.manager import SessionManager
from aeolus_sandbox.profiles import SandboxProfile, WarmStart
from aeolus_sandbox.sandboxes.pool_settings import PoolSettings, PoolStats
from aeolus_sandbox.streaming.chunks import OutputChunk
from aeolus_sandbox.streaming.tool import IsolationMode, StreamingTool, StreamingToolHandle, ToolContext
from aeolus_sandbox.testing.local_engine import LocalContainer
from aeolus_sandbox.tools.terminal import TerminalInput, TerminalTool

TOOL = TerminalTool(image="local")
ON_PIPES = TerminalInput(command="exec cat", tty=False)
ON_TERMINAL = TerminalInput(command="exec cat", tty=True)
BRISK = PoolSettings(backoff_s=0.05, max_backoff_s=0.1, check_timeout_s=5.0)
"""For tests: it tries again soon, and is patient with a busy machine."""

_LOOP = (
    'echo "$1 is ready"; while read -r line; do test "$line" = there? && echo yes || echo "got $line"; done'
)


class EchoInput(BaseModel):
    """What is sent to the program."""

    line: str


class EchoChunk(OutputChunk):
    """What the program says."""

    type: Literal["echo"] = "echo"
    text: str

    @property
    def cost(self) -> int:
        return len(self.text)


class EchoResult(BaseModel):
    """Nothing but that it has ended."""


class EchoTool(StreamingTool[EchoInput, EchoChunk, EchoResult]):
    """Sends a line to a program that waits for lines, and streams its first two."""

    name: ClassVar[str] = "echo"
    description: ClassVar[str] = "Echo."
    Input = EchoInput
    OutputChunk = EchoChunk
    Final = EchoResult
    isolation = IsolationMode.CONTAINER

    def __init__(self, *, image: str = "local", warm_loop: str = _LOOP) -> None:
        self.image = image
        self.warm_loop = warm_loop

    def profile(self, tool_input: EchoInput) -> SandboxProfile:
        warm = WarmStart(argv=("sh", "-c", self.warm_loop, "sh", "warm"), ask=b"there?\n", answer=b"yes\n")
        return SandboxProfile(image=self.image, argv=("sh", "-c", _LOOP, "sh", "cold"), warm=warm)

    async def start(
        self, tool_input: EchoInput, context: ToolContext
    ) -> StreamingToolHandle[EchoChunk, EchoResult]:
        process = await context.run(self.profile(tool_input))

        async def chunks() -> AsyncIterator[EchoChunk]:
            await process.write(f"{tool_input.line}\n".encode())
            process.write_eof()
            while pieces := await process.read():
                yield EchoChunk(text=b"".join(piece.data for piece in pieces).decode())

        async def result() -> EchoResult:
            await process.wait()
            return EchoResult()

        return StreamingToolHandle(chunks=chunks(), finalize=result())


async def echo(manager: SessionManager, line: str, tool: EchoTool | None = None) -> str:
    """Return what the program says when it gets a line."""
    async with await manager.open(tool or EchoTool(), EchoInput(line=line)) as session:
        return "".join([chunk.text async for chunk in session])


async def run(manager: SessionManager, command: str, *, tty: bool = False) -> str:
    """Return what a command prints."""
    asked = TerminalInput(command=command, tty=tty)
    async with await manager.open(TOOL, asked) as session:
        return "".join([chunk.text async for chunk in session])


def only_stats(manager: SessionManager) -> PoolStats:
    """Return what there is to say of the only kind."""
    [stats] = manager.pool.stats()
    return stats


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what must happen, however busy the machine is."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - a pool tells only who asks
            await asyncio.sleep(0.01)


def waiting(manager: SessionManager) -> list[LocalContainer]:
    """Return the containers that wait, the oldest first."""
    pooled = [pooled for shelf in manager._host.pool._shelves.values() for pooled in shelf.parked]
    return [each.container for each in pooled if isinstance(each.container, LocalContainer)]
