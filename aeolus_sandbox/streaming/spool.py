"""The spool: everything a tool streamed that is still held. The pump fills it, the policies are views that read it.

The spool *is* the queue. It is bounded by the session's `output_bytes`; a reader that stops reading costs the tool
nothing. Chunks lie in it as bytes (see `ChunkCodec`), so that what they cost is known and they can go to a file.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final, Generic

from aeolus_sandbox.streaming.byte_log import MEMORY_BYTES, ByteLog
from aeolus_sandbox.streaming.chunks import C, ChunkCodec, Span

_MERGE_BELOW_BYTES: Final = 32 * 1024
"""Unread neighbours are joined up to this size, so that a million tiny writes do not become a million records."""
_RECORD_COST_BYTES: Final = 64
"""What a chunk that cannot be joined with its neighbours is counted for beyond its payload."""


@dataclass(slots=True)
class Record:
    """One chunk in the spool."""

    index: int
    tag: int
    start: int
    end: int
    characters: int
    chunks: int = 1
    """How many chunks of the tool were joined in it."""
    sealed: bool = False
    """Set once somebody reads it: from then on it does not grow."""
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
        self.total_chunks = 0
        """How many chunks of the tool have been appended in all."""
        self.total_characters = 0
        """How many characters have been appended in all."""
        self.next_index = 0
        """Index that the next record gets; also how many chunks there have been."""
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
            self._records.append(Record(self.next_index, tag, start, self._log.end, characters))
            self.next_index += 1
            self._overhead_bytes += self._cost_bytes
        self._changed.set()

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

        Args:
            payload_bytes: The size.
            lets_oldest_go: Whether chunks that nobody has read may go too.
        """
        while not self.fits(payload_bytes):
            if not self._records or not (lets_oldest_go or self._records[0].done):
                return False
            self.evict_oldest()
        return True

    def evict_oldest(self) -> None:
        """Let go of the oldest chunk, read or not."""
        record = self._records.popleft()
        self._overhead_bytes -= self._cost_bytes
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
        """Return the chunk of this index, or None when it is not there yet, or no more."""
        position = self._position(index)
        found = self._records[position] if 0 <= position < len(self._records) else None
        return found if found is not None and found.index == index else None

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
        self._overhead_bytes -= self._cost_bytes

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

    async def read_range(self, start: int, end: int) -> bytes:
        """Return the bytes of the part of a range that is still held."""
        return await self._log.read(start, end)

    def _position(self, index: int) -> int:
        """Return where a chunk that was not read stands; from the end, because before it some may be joined."""
        return len(self._records) - (self.next_index - index)

    @property
    def _cost_bytes(self) -> int:
        return 0 if self._codec.merges else _RECORD_COST_BYTES

    def _may_join(self, last: Record, tag: int, payload_bytes: int) -> bool:
        small = last.end - last.start + payload_bytes <= _MERGE_BELOW_BYTES
        return last.tag == tag and not last.sealed and small
