"""A host program that reads from a recorded run as it is told: run by the tests of progress, which kill it.

`python -m tests.integration.counting_host STATE KEY` says after what its tool goes on. Then, for each line of its input,
it reads so many chunks (all that are left, where the line names none) and prints their numbers.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

from pydantic import BaseModel

from aeolus_sandbox import (
    OutputChunk,
    SessionManager,
    StreamingTool,
    StreamingToolHandle,
    ToolContext,
    Window,
)
from aeolus_sandbox.streaming.chunks import ChunkBatch, JsonCodec, Span

UPTO: Final = 5000
_BATCH: Final = 7


class Nothing(BaseModel):
    pass


class Number(OutputChunk):
    number: int


class Numbers(BaseModel):
    upto: int


class NumberCodec(JsonCodec[Number]):
    """Batches are lines of numbers."""

    def decode_batch(self, tag: int, payload: bytes, start: int) -> list[Number]:
        chunks = []
        for line in payload.splitlines(keepends=True):
            chunks.append(Number(number=int(line), span=Span(start, start + len(line))))
            start += len(line)
        return chunks


def batch_of(numbers: Sequence[int]) -> ChunkBatch:
    return ChunkBatch(b"".join(b"%d\n" % number for number in numbers), len(numbers))


class Counting(StreamingTool[Nothing, Number, Numbers]):
    """Counts from after its progress, in batches."""

    name: ClassVar[str] = "counting"
    description: ClassVar[str] = "Counts."
    Input = Nothing
    OutputChunk = Number
    Final = Numbers
    policy = Window(max_chunks=20, wait_for_reader=True)
    idempotent = True

    def codec(self) -> NumberCodec:
        return NumberCodec(Number)

    def after(self, chunk: Number) -> str:
        return str(chunk.number)

    async def start(self, tool_input: Nothing, context: ToolContext) -> StreamingToolHandle[Number, Numbers]:
        _say(after=context.progress)

        async def chunks() -> AsyncIterator[ChunkBatch]:
            for first in range(int(context.progress or -1) + 1, UPTO, _BATCH):
                if handle.cancel.is_cancelled:
                    return
                yield batch_of(range(first, min(first + _BATCH, UPTO)))

        async def result() -> Numbers:
            return Numbers(upto=UPTO)

        handle = StreamingToolHandle(chunks=chunks(), finalize=result(), progress=self)
        return handle


def _say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def _main(state: str, key: str) -> None:
    async with (
        SessionManager(state_path=Path(state)) as manager,
        await manager.open(Counting(), Nothing(), idempotency_key=key) as session,
    ):
        while line := await asyncio.to_thread(sys.stdin.readline):
            for _ in range(int(line.strip() or UPTO)):
                chunk = await session.next_chunk()
                if chunk is None:
                    break
                _say(number=chunk.number)
            if not line.strip():
                _say(upto=(await session.finalize()).upto)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
