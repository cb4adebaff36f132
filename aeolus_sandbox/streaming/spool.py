"""The spool: everything a tool streamed that is still held. The pump fills it, the policies are views that read it.

The spool *is* the queue. It is bounded by the session's `output_bytes`; a reader that stops reading costs the tool
nothing. Chunks lie in it as bytes (see `ChunkCodec`), so that what they cost is known and they can go to a file.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, cast

from aeolus_sandbox.errors import SessionBroken
from aeolus_sandbox.streaming.byte_log import MEMORY_BYTES, ByteLog
from aeolus_sandbox.streaming.chunks import BatchCodec, C, ChunkBatch, ChunkCodec, Span

_MERGE_BELOW_BYTES: Final = 32 * 1024
"""Unread neighbours are joined up to this size, so that a million tiny writes do not become a million records."""
_RECORD_COST_BYTES: Final = 64
"""What a chunk that cannot be joined with its neighbours, or a batch, is counted for beyond its payload."""


@dataclass(slots=True)
class Record:
    """One chunk in the spool, or a batch of them."""

    index: int
    """Index of the chunk, or of the first of the batch."""
    tag: int
    start: int
    end: int
    characters: int
    chunks: int = 1
    """How many chunks of the tool were joined in it, or make the batch."""
    is_batch: bool = False
    sealed: bool = False
    """Set once somebody reads it, and for a batch at once: from then on it does not grow."""
    read: bool = False
    """Set once the reader has it: from then on it is held for its range alone, while memory has room."""
    done: bool = False
    """Set once the policy needs it no more: from then on it is held for its range alone, while the spool has room."""


class Spool(Generic[C]):
    """The chunks of one session that are held, in order; one writer (the pump) and one reader (a policy's view)."""

    def __init__(
        self, codec: ChunkCodec[C], *, capacity_bytes: int, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self._codec = codec
        self._join_done_bytes = min(_MERGE_BELOW_BYTES, capacity_bytes // 64)
        self._log = ByteLog(capacity_bytes=capacity_bytes, memory_bytes=memory_bytes)
        self._records: deque[Record] = deque()
        self._overhead_bytes = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._hurries = False
        self._has_batches = False
        self.total_chunks = 0
        """How many chunks of the tool have been appended in all."""
        self.total_characters = 0
        """How many characters have been appended in all."""
        self.next_index = 0
        """Index that the next chunk gets; also how many there have been."""
        self.awaits_room = False
        """Whether the pump waits for the reader."""
        self.evictions = 0
        """How often something was let go."""
        self.reader_index = 0
        """Index of the next chunk that the reader gets, as far as it has said."""
        self.ended = False
        """Whether nothing more comes."""
        self.error: BaseException | None = None
        """What broke the stream, if anything did."""

    # The pump's side.

    def fits(self, payload_bytes: int) -> bool:
        """Return whether a chunk of this size can be appended without letting go of anything."""
        return self._log.held_bytes + self._overhead_bytes + payload_bytes <= self._log.capacity_bytes

    def append(self, tag: int, payload: bytes) -> None:
        """Append a chunk that fits."""
        characters = len(payload) if payload.isascii() else len(payload.decode("utf-8", "replace"))
        start = self._log.append(payload)
        self.total_chunks += 1
        self.total_characters += characters
        last = self._records[-1] if self._records else None
        if self._codec.merges and last is not None and self._may_join(last, tag, len(payload)):
            last.end += len(payload)
            last.characters += characters
            last.chunks += 1
        else:
            self._put(Record(self.next_index, tag, start, self._log.end, characters))
            self.next_index += 1
        self._changed.set()

    def append_batch(self, batch: ChunkBatch) -> None:
        """Append a batch that fits; the codec must be a `BatchCodec`."""
        payload = batch.payload
        characters = len(payload) if payload.isascii() else len(payload.decode("utf-8", "replace"))
        start = self._log.append(payload)
        record = Record(self.next_index, batch.tag, start, self._log.end, characters, batch.count)
        record.is_batch = record.sealed = self._has_batches = True
        self._put(record)
        self.next_index += batch.count
        self.total_chunks += batch.count
        self.total_characters += characters
        self._changed.set()

    async def wait_room(self, payload_bytes: int, *, max_chunks: int) -> None:
        """Wait until fewer than `max_chunks` wait for the reader, and so many bytes fit, or `hurry` was called.

        Returns also once the reader has everything, although so many bytes may never fit. The reader's view must say
        where it is (`note_position`).
        """
        while not self._hurries and self.reader_index < self.next_index:
            unread = self.next_index - self.reader_index
            if unread < max_chunks and self.make_room(payload_bytes, lets_oldest_go=False):
                return
            self._room.clear()
            self.awaits_room = True
            try:
                await self._room.wait()
            finally:
                self.awaits_room = False

    def hurry(self) -> None:
        """Let nobody wait for room any more: the end is near."""
        self._hurries = True
        self._room.set()

    async def settle(self) -> None:
        """Let go of, or move to a file, what is too much for memory; called by the pump after appending.

        What the reader has is let go: it costs nothing to keep only while there is room. All else goes to the file.

        Raises:
            OSError: The host's disk is full.
        """
        while self._log.must_spill:
            if self._records and self._records[0].read:
                self.evict_oldest()
            else:
                await self._log.spill()

    def make_room(self, payload_bytes: int, *, lets_oldest_go: bool) -> bool:
        """Let go of the oldest chunks until one of this size fits; return whether it does.

        For what can never fit, nothing is let go.

        Args:
            payload_bytes: The size.
            lets_oldest_go: Whether chunks that nobody has read may go too.
        """
        if payload_bytes > self._log.capacity_bytes:
            return False
        while not self.fits(payload_bytes):
            if not self._records or not (lets_oldest_go or self._records[0].done):
                return False
            self.evict_oldest()
        return True

    def evict_oldest(self) -> None:
        """Let go of the oldest chunk, read or not."""
        record = self._records.popleft()
        self.evictions += 1
        self._overhead_bytes -= self._cost_bytes(record)
        self._log.forget_before(record.end)

    def end(self, error: BaseException | None = None) -> None:
        """Say that nothing more comes, and why if something broke."""
        self.ended = True
        self.error = self.error or error
        self._changed.set()

    def close(self) -> None:
        """Let go of everything that is held."""
        self.end()
        self._records.clear()
        self._log.close()

    # The reader's side.

    @property
    def first_index(self) -> int:
        """Index of the oldest chunk that is held."""
        return self._records[0].index if self._records else self.next_index

    @property
    def total_bytes(self) -> int:
        """How many bytes have been appended in all."""
        return self._log.end

    def record(self, index: int) -> Record | None:
        """Return what holds the chunk of this index, or None when it is not there yet, or no more."""
        position = self._position(index)
        found = self._records[position] if 0 <= position < len(self._records) else None
        if found is None or found.index == index:
            return found
        in_batch = found.is_batch and not found.done  # one that is done may have been joined with others
        return found if in_batch and found.index < index < found.index + found.chunks else None

    def records_from(self, index: int) -> list[Record]:
        """Return what holds the chunk of this index, which was not read, and all after it."""
        if self.record(index) is None:
            return []
        return list(islice(self._records, self._position(index), None))

    def note_position(self, index: int) -> None:
        """Say which chunk the reader gets next."""
        self.reader_index = index
        self._room.set()

    def note_read(self, record: Record) -> None:
        """Say that the reader has a chunk.

        Those that were read are joined: a reader that keeps up with a million tiny writes would otherwise leave a
        million records behind, which cost the host far more than the bytes that are counted.
        """
        record.read = record.done = True
        self._join_with_done(record)

    def note_done(self, record: Record) -> None:
        """Say that the policy has what it needs of a chunk that the reader will not get; joined like those it has."""
        record.done = True
        self._join_with_done(record)

    def _join_with_done(self, record: Record) -> None:
        position = self._position(record.index)
        before = self._records[position - 1] if 0 < position < len(self._records) else None
        if before is None or not before.done or before.read != record.read:
            return
        if record.end - before.start > self._join_done_bytes:
            return
        before.end = record.end
        before.characters += record.characters
        before.chunks += record.chunks
        del self._records[position]
        self._overhead_bytes -= self._cost_bytes(record)

    async def wait_changed(self) -> None:
        """Wait until something was appended, or the end; for one task at a time."""
        self._changed.clear()
        await self._changed.wait()

    async def load(self, record: Record) -> C | None:
        """Return the chunk of a record, or None when it was let go meanwhile."""
        record.sealed = True
        payload = self._log.in_memory(record.start, record.end)
        if payload is None:
            payload = await self._log.read(record.start, record.end)
            if len(payload) != record.end - record.start:
                return None
        chunk = self._codec.decode(record.tag, payload)
        chunk.span = Span(record.start, record.end)
        return chunk

    async def load_batch(self, record: Record) -> Sequence[C]:
        """Return the chunks of a batch, or none when it was let go meanwhile.

        Raises:
            SessionBroken: They are not as many as the batch was said to hold.
        """
        payload = self._log.in_memory(record.start, record.end)
        if payload is not None:
            # A reader that has much before it would otherwise keep the pump from reading, and the tool from going on.
            await asyncio.sleep(0)
        else:
            payload = await self._log.read(record.start, record.end)
            if len(payload) != record.end - record.start:
                return []
        chunks = cast("BatchCodec[C]", self._codec).decode_batch(record.tag, payload, record.start)
        if len(chunks) != record.chunks:
            msg = f"a batch of {record.chunks} chunks holds {len(chunks)}: the tool, or its codec, is wrong"
            raise SessionBroken(msg)
        return chunks

    async def read_range(self, start: int, end: int) -> bytes:
        """Return the bytes of the part of a range that is still held."""
        return await self._log.read(start, end)

    def _position(self, index: int) -> int:
        """Return where the record of a chunk that was not read stands."""
        if self._has_batches:
            return bisect_right(self._records, index, key=_index_of) - 1
        # From the end, because before it some may be joined.
        return len(self._records) - (self.next_index - index)

    def _put(self, record: Record) -> None:
        self._records.append(record)
        self._overhead_bytes += self._cost_bytes(record)

    def _cost_bytes(self, record: Record) -> int:
        return 0 if self._codec.merges and not record.is_batch else _RECORD_COST_BYTES

    def _may_join(self, last: Record, tag: int, payload_bytes: int) -> bool:
        small = last.end - last.start + payload_bytes <= _MERGE_BELOW_BYTES
        return last.tag == tag and not last.sealed and small


def _index_of(record: Record) -> int:
    return record.index
