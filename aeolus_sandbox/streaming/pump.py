"""The pump: reads everything that a tool streams into the session's spool, through the filters."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Generic, cast

from aeolus_sandbox.exit_status import Stop
from aeolus_sandbox.limits import LimitName
from aeolus_sandbox.streaming.chunks import BatchCodec, C, ChunkBatch, ChunkCodec
from aeolus_sandbox.streaming.filters import Filter
from aeolus_sandbox.streaming.filters.chunk_filter import ChunkFilter
from aeolus_sandbox.streaming.policies import Policy
from aeolus_sandbox.streaming.spool import Spool

_FILTERED_AT_ONCE: Final = 32 * 1024
"""How many characters of a flow are filtered in the event loop; longer ones go to a thread."""
_BREATHE_EVERY: Final = 256
"""After how many chunks the pump lets everybody else run, however many more are there."""


class Pump(Generic[C]):
    """Fills one session's spool, whatever the reader does; it waits for the reader only where the policy says so."""

    def __init__(
        self,
        spool: Spool[C],
        *,
        codec: ChunkCodec[C],
        policy: Policy,
        filters: Sequence[Filter],
        touch: Callable[[], None],
        over: Callable[[Stop], None],
    ) -> None:
        """Begin with nothing read.

        Args:
            spool: Where the chunks go.
            codec: The tool's.
            policy: Says what becomes of chunks for which there is no room.
            filters: What is taken out of the text, in this order.
            touch: Called whenever the tool has streamed something.
            over: Called when there is no room; it must end the run.
        """
        self._spool = spool
        self._codec = codec
        self._policy = policy
        self._filter: ChunkFilter[C] | None = ChunkFilter(filters) if filters else None
        self._touch = touch
        self._over = over
        self._taken = 0
        self._is_cut = False
        """Set once something found no room: from then on nothing is kept, or the reader would not see the hole."""

    async def run(self, chunks: AsyncIterator[C | ChunkBatch]) -> None:
        """Read to the end.

        Raises:
            OSError: The host's disk is full.
            Exception: Whatever the tool failed with.
        """
        async for item in chunks:
            self._touch()
            if not isinstance(item, ChunkBatch):
                await self._take(item)
            elif self._filter is None and self._policy.takes_batches:
                await self._keep_batch(item)
            else:
                for chunk in self._taken_apart(item):
                    await self._take(chunk)
        if self._filter is not None:
            for chunk in self._filter.flush():
                await self._keep(chunk)

    async def _take(self, chunk: C) -> None:
        self._taken += 1
        if self._taken % _BREATHE_EVERY == 0:  # those that are there already come without a pause
            await asyncio.sleep(0)
        if self._filter is None:
            await self._keep(chunk)
        elif (passed := await _filtered(chunk, self._filter)) is not None:
            await self._keep(passed)

    async def _keep(self, chunk: C) -> None:
        if self._is_cut:  # what has not been read would stall the end
            return
        tag, payload = self._codec.encode(chunk)
        if await self._has_room(len(payload)):
            self._spool.append(tag, payload)
            await self._spool.settle()
        else:
            self._is_cut = True
            self._over(Stop(reason="output_limit", limit_hit=LimitName.OUTPUT_BYTES))

    async def _keep_batch(self, batch: ChunkBatch) -> None:
        """Keep a batch as one; where there is no room for it, as many of its chunks as fit."""
        await asyncio.sleep(0)
        if self._is_cut:
            return
        self._check_codec()
        if await self._has_room(len(batch.payload)):
            self._spool.append_batch(batch)
            await self._spool.settle()
        else:
            for chunk in self._taken_apart(batch):
                await self._keep(chunk)

    async def _has_room(self, payload_bytes: int) -> bool:
        """Return whether so much can be kept, after waiting for the reader where the policy does."""
        waits_at = self._policy.waits_at
        if waits_at is not None:
            await self._spool.wait_room(payload_bytes, max_chunks=waits_at)
        lets_oldest_go = self._policy.lets_oldest_go and waits_at is None
        return self._spool.make_room(payload_bytes, lets_oldest_go=lets_oldest_go)

    def _taken_apart(self, batch: ChunkBatch) -> Sequence[C]:
        self._check_codec()
        return cast("BatchCodec[C]", self._codec).decode_batch(batch.tag, batch.payload, 0)

    def _check_codec(self) -> None:
        if not hasattr(self._codec, "decode_batch"):
            msg = f"the tool streams batches, but its codec {type(self._codec).__name__!r} is no BatchCodec"
            raise TypeError(msg)


async def _filtered(chunk: C, chunk_filter: ChunkFilter[C]) -> C | None:
    if chunk.flow() is None or len(chunk.as_text()) > _FILTERED_AT_ONCE:
        return await asyncio.to_thread(chunk_filter.feed, chunk)
    return chunk_filter.feed(chunk)
