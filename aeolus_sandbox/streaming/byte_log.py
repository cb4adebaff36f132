"""An append-only log of bytes with absolute offsets: the newest in memory, the rest in a file, bounded in all."""

import asyncio
import os
import tempfile
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import IO, Final

MEMORY_BYTES: Final = 16 * 1024 * 1024
"""How much of a log stays in memory by default."""
_JOIN_BELOW_BYTES: Final = 4096
"""Neighbours are joined up to this size: a piece of a few bytes costs the host twenty times what it is counted for."""
_SPILL_BYTES: Final = 2 * 1024 * 1024
"""How much moves to the file at once: few large writes instead of many small ones."""


class ByteLog:
    """Holds the last `capacity_bytes` of what was appended.

    The file is used as a ring of `capacity_bytes`, is made only when memory is full, and has no name.
    """

    def __init__(self, *, capacity_bytes: int, memory_bytes: int = MEMORY_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self._memory_bytes = memory_bytes
        self._pieces: deque[bytes] = deque()
        self._starts: deque[int] = deque()
        self._file: IO[bytes] | None = None
        self.start = 0
        """Offset of the oldest byte that is held."""
        self.end = 0
        """Offset after the newest byte."""

    @property
    def held_bytes(self) -> int:
        """How many bytes are held."""
        return self.end - self.start

    @property
    def _memory_start(self) -> int:
        """Offset of the oldest byte that is in memory."""
        return self._starts[0] if self._starts else self.end

    @property
    def must_spill(self) -> bool:
        """Whether memory is full, so that `spill` must be called before more is appended."""
        return self.end - self._memory_start > self._memory_bytes + _SPILL_BYTES

    def append(self, data: bytes) -> int:
        """Append bytes and return the offset of the first of them; the caller keeps `held_bytes` within capacity."""
        start = self.end
        if data:
            if self._pieces and len(self._pieces[-1]) + len(data) <= _JOIN_BELOW_BYTES:
                self._pieces[-1] += data
            else:
                self._pieces.append(data)
                self._starts.append(start)
            self.end += len(data)
        return start

    def forget_before(self, offset: int) -> None:
        """Let go of all bytes before `offset`."""
        self.start = max(self.start, min(offset, self.end))
        while self._pieces and self._starts[0] + len(self._pieces[0]) <= self.start:
            self._drop_oldest_piece()

    def in_memory(self, start: int, end: int) -> bytes | None:
        """Return the bytes of a held range if all of it is in memory, else None."""
        if start < self._memory_start:
            return None
        if start >= end:
            return b""
        if start == self._starts[-1]:
            first = len(self._starts) - 1
        elif start == self._starts[0]:
            first = 0
        else:
            first = bisect_right(self._starts, start) - 1
        found: list[bytes] = []
        position = first
        while position < len(self._starts) and self._starts[position] < end:
            offset, piece = self._starts[position], self._pieces[position]
            found.append(piece[max(0, start - offset) : end - offset])
            position += 1
        return found[0] if len(found) == 1 else b"".join(found)

    async def read(self, start: int, end: int) -> bytes:
        """Return the bytes of the part of a range that is held (all of it, unless `start` was let go)."""
        start, end = max(start, self.start), min(end, self.end)
        if start >= end:  # all of it was let go
            return b""
        found = self.in_memory(start, end)
        if found is not None:
            return found
        boundary = min(end, self._memory_start)
        newer = self.in_memory(boundary, end) or b""
        older = await asyncio.to_thread(self._read_file, start, boundary)
        late = max(0, min(self.start, boundary) - start)  # overwritten or let go while the file was read
        return older[late:] + newer

    async def spill(self) -> None:
        """Move the oldest bytes in memory to the file.

        Raises:
            OSError: The host's disk is full.
        """
        batch: list[bytes] = []
        size = 0
        for piece in self._pieces:
            if size >= _SPILL_BYTES:
                break
            batch.append(piece)
            size += len(piece)
        start = self._memory_start
        await asyncio.to_thread(self._write_file, start, batch)
        while self._starts and self._starts[0] < start + size:
            self._drop_oldest_piece()

    def close(self) -> None:
        """Let go of everything."""
        self.forget_before(self.end)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _drop_oldest_piece(self) -> None:
        self._starts.popleft()
        self._pieces.popleft()

    def _ring_ranges(self, start: int, length: int) -> list[tuple[int, int]]:
        """Return (file position, length) of the one or two stretches that a range has in the ring."""
        size = self.capacity_bytes + 2 * _SPILL_BYTES
        position = start % size
        first = min(length, size - position)
        return [(position, first), (0, length - first)] if length > first else [(position, first)]

    def _write_file(self, start: int, pieces: Sequence[bytes]) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="aeolus-spool-")  # noqa: SIM115 - closed with the log
        view = memoryview(b"".join(pieces))  # one large write, and one wait for the interpreter's lock
        for position, length in self._ring_ranges(start, len(view)):
            _write_fully(self._file.fileno(), view[:length], position)
            view = view[length:]

    def _read_file(self, start: int, end: int) -> bytes:
        if self._file is None:
            return b""
        ranges = self._ring_ranges(start, end - start)
        return b"".join(os.pread(self._file.fileno(), length, position) for position, length in ranges)


def _write_fully(descriptor: int, data: memoryview, position: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, position)
        data, position = data[written:], position + written
