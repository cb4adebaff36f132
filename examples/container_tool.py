"""A tool of your own in a container: it sorts lines with the sandbox's `sort`, and streams them."""
# ruff: noqa: T201

import asyncio
from collections.abc import AsyncIterator
from typing import ClassVar

from pydantic import BaseModel

from aeolus_sandbox import (
    CancelToken,
    ExitStatus,
    IsolationMode,
    OutputChunk,
    Process,
    SandboxProfile,
    SessionManager,
    StreamingTool,
    StreamingToolHandle,
    ToolContext,
    Window,
)


class SortInput(BaseModel):
    """What to sort."""

    lines: list[str]


class Line(OutputChunk):
    """One line, in its place."""

    text: str


class SortResult(BaseModel):
    """How the program ended."""

    status: ExitStatus


class Sort(StreamingTool[SortInput, Line, SortResult]):
    """Sort lines in a sandbox."""

    name: ClassVar[str] = "sort"
    description: ClassVar[str] = "Sort lines."
    Input = SortInput
    OutputChunk = Line
    Final = SortResult
    policy = Window()
    isolation = IsolationMode.CONTAINER

    async def start(
        self, tool_input: SortInput, context: ToolContext
    ) -> StreamingToolHandle[Line, SortResult]:
        """Park a container, run `sort` in it, and give it the lines."""
        sandbox = await context.park(SandboxProfile(image="shell"))
        process = await sandbox.exec(["sort"])
        await process.write("".join(f"{line}\n" for line in tool_input.lines).encode())
        process.write_eof()
        return StreamingToolHandle(
            chunks=self._lines(process), finalize=self._result(process), cancel=CancelToken(process.stop)
        )

    async def _lines(self, process: Process) -> AsyncIterator[Line]:
        held = b""
        while pieces := await process.read():
            *whole, held = (held + b"".join(piece.data for piece in pieces)).split(b"\n")
            for line in whole:
                yield Line(text=line.decode("utf-8", "replace"))

    async def _result(self, process: Process) -> SortResult:
        return SortResult(status=await process.wait())


async def main() -> None:
    """Sort three lines."""
    async with SessionManager() as manager:
        async with await manager.open(Sort(), SortInput(lines=["pear", "apple", "fig"])) as session:
            async for line in session:
                print(line.text)
        print((await session.finalize()).status)


if __name__ == "__main__":
    asyncio.run(main())
