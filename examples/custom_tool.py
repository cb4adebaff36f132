"""A tool of your own: a countdown that streams its chunks, runs in this process, and can be cancelled."""
# ruff: noqa: T201

import asyncio
from collections.abc import AsyncIterator
from typing import ClassVar

from pydantic import BaseModel

from aeolus_sandbox import (
    CancelToken,
    OutputChunk,
    SessionManager,
    StreamingTool,
    StreamingToolHandle,
    ToolContext,
)


class CountdownInput(BaseModel):
    """From where to count."""

    start: int


class Tick(OutputChunk):
    """One number."""

    left: int


class CountdownResult(BaseModel):
    """How far it came."""

    ticks: int
    was_cancelled: bool


class Countdown(StreamingTool[CountdownInput, Tick, CountdownResult]):
    """Count down to zero."""

    name: ClassVar[str] = "countdown"
    description: ClassVar[str] = "Counts down to zero."
    Input = CountdownInput
    OutputChunk = Tick
    Final = CountdownResult

    async def start(
        self,
        tool_input: CountdownInput,
        context: ToolContext,
    ) -> StreamingToolHandle[Tick, CountdownResult]:
        """Start counting."""
        cancel = CancelToken()
        ticks = 0

        async def count() -> AsyncIterator[Tick]:
            nonlocal ticks
            for left in range(tool_input.start, 0, -1):
                if cancel.is_cancelled:
                    return
                ticks += 1
                yield Tick(left=left)
                await asyncio.sleep(0.01)

        async def result() -> CountdownResult:
            return CountdownResult(ticks=ticks, was_cancelled=cancel.is_cancelled)

        return StreamingToolHandle(chunks=count(), finalize=result(), cancel=cancel)


async def main() -> None:
    """Count down from three."""
    async with SessionManager() as manager:
        async with await manager.open(Countdown(), CountdownInput(start=3)) as session:
            async for tick in session:
                print(tick.left)
        print(await session.finalize())


if __name__ == "__main__":
    asyncio.run(main())
