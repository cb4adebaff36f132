"""Numbered chunks, alone and in batches, for the tests of what a session does with them."""

from collections.abc import AsyncIterator, Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from pydantic import BaseModel

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.exit_status import Stop
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.streaming.chunks import ChunkBatch, JsonCodec, OutputChunk, Span
from aeolus_sandbox.streaming.policies import Policy
from aeolus_sandbox.streaming.session import StreamingToolSession
from aeolus_sandbox.streaming.tool import CancelToken, StreamingToolHandle
from tests.unit.policy_contexts import session_services

Item = OutputChunk | ChunkBatch


class Numbered(OutputChunk):
    number: int
    text: str = ""


class NumberedCodec(JsonCodec[Numbered]):
    """A JSON line for each chunk; a batch is those lines."""

    def __init__(self, *, merges: bool = False) -> None:
        super().__init__(Numbered)
        self.merges = merges

    def decode_batch(self, tag: int, payload: bytes, start: int) -> list[Numbered]:
        lines = payload.splitlines(keepends=True)
        chunks = [Numbered.model_validate_json(line) for line in lines]
        ends = accumulate(map(len, lines), initial=start)
        for chunk, (begin, end) in zip(chunks, pairwise(ends), strict=True):
            chunk.span = Span(begin, end)
        return chunks


CODEC = NumberedCodec()


def encoded(chunk: Numbered) -> bytes:
    return CODEC.encode(chunk)[1]


def batch_of(chunks: Sequence[Numbered]) -> ChunkBatch:
    return ChunkBatch(b"".join(map(encoded, chunks)), len(chunks))


def grouped(sizes: Sequence[int], *, text: Callable[[int], str] = str) -> list[list[Numbered]]:
    """Return groups of chunks, numbered from 0 through all of them."""
    ends = list(accumulate(sizes, initial=0))
    return [[Numbered(number=n, text=text(n)) for n in range(*each)] for each in pairwise(ends)]


def spans_of(chunks: Sequence[Numbered]) -> list[Span]:
    """Return where the chunks lie in a spool that got them all."""
    return [Span(*each) for each in pairwise(accumulate((len(encoded(each)) for each in chunks), initial=0))]


class Count(BaseModel):
    streamed: int


class NumberedTool:
    """One running tool that streams what it is given, and ends early when it is told to."""

    def __init__(self, items: Sequence[Item | Exception], *, codec: Any = CODEC) -> None:
        self.items = items
        self.codec = codec
        self.streamed = 0
        """How many items were asked for."""
        self.stop: Stop | None = None
        self.ends_at_once = True
        """Whether it streams nothing more after it was told to end."""

    async def chunks(self) -> AsyncIterator[Any]:
        for item in self.items:
            if self.stop is not None and self.ends_at_once:
                return
            if isinstance(item, Exception):
                raise item
            self.streamed += 1
            yield item

    async def result(self) -> Count:
        return Count(streamed=self.streamed)

    async def _end(self, stop: Stop) -> None:
        self.stop = stop

    def open(
        self, policy: Policy, tasks: BackgroundTasks, *, services: Any = None, **fields: Any
    ) -> StreamingToolSession[Numbered, Count]:
        async def release() -> None: ...

        limits = {name: fields.pop(name) for name in list(fields) if name in Limits.model_fields}
        return StreamingToolSession(
            StreamingToolHandle(chunks=self.chunks(), finalize=self.result(), cancel=CancelToken(self._end)),
            session_id="s",
            tool_name="t",
            policy=policy,
            codec=self.codec,
            limits=Limits.model_validate(limits),
            services=services or session_services(tasks),
            release=release,
            **fields,
        )
