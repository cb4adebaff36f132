"""Where the reading of a file begins: what kind it is, whether it is a copy, and where its last lines are."""

import os
from collections import deque
from typing import Final

from aeolus_sandbox.guest.logs.sources.catalog import Catalog
from aeolus_sandbox.guest.logs.sources.contents import (
    HEAD_BYTES,
    Content,
    GzipContent,
    content_of,
    is_too_short,
    kind_of,
)
from aeolus_sandbox.guest.logs.sources.generations import Generation
from aeolus_sandbox.guest.logs.sources.relatives import continued_in
from aeolus_sandbox.guest.logs.sources.rotation import Rotation

_BLOCK_BYTES: Final = 64 * 1024
_WAIT: Final = "wait"


class Beginnings:
    """Begins files."""

    def __init__(self, catalog: Catalog, rotation: Rotation) -> None:
        self._catalog = catalog
        self._rotation = rotation

    def begin(self, generation: Generation, fd: int) -> bool:
        """Find out where to read a file from; return whether it can be read now."""
        head = os.pread(fd, HEAD_BYTES, 0)
        if not head or (is_too_short(head) and not generation.is_final):
            return self._wait(generation)
        generation.file_head = head
        kind = kind_of(head)
        if kind not in ("plain", "gzip"):
            self._pass_by(generation, kind, fd)
            return False
        if kind == "plain":
            generation.head = head
        generation.content = GzipContent() if kind == "gzip" else Content()
        if not self._is_new(generation, fd):
            return False
        if generation.tail_lines is not None:
            self._to_last_lines(generation, fd, generation.tail_lines)
        generation.is_begun = True
        if generation.is_missed and generation.replaces is None:
            self._rotation.count(generation)
        return True

    def _wait(self, generation: Generation) -> bool:
        self._catalog.rest(generation)
        if generation.is_final:
            self._catalog.finish(generation)
        return False

    def _pass_by(self, generation: Generation, kind: str, fd: int) -> None:
        path = generation.path
        if kind == "utf16":
            self._catalog.notice("refused", f"{path} is UTF-16, which is not read: only UTF-8 is", path)
        else:
            self._catalog.notice("skipped", f"{path} is compressed as {kind}, which is not read", path)
        self._leave_out(generation, fd)

    def _leave_out(self, generation: Generation, fd: int) -> None:
        size = os.fstat(fd).st_size
        generation.is_begun = generation.is_passed = True
        generation.content = Content(size)
        generation.splitter.line_start = size
        self._catalog.finish(generation)

    def _is_new(self, generation: Generation, fd: int) -> bool:
        """Return whether a file is to be read, and not the copy of one that was read; what a copy has more is read."""
        for other in list(self._catalog.lane_of(generation.path).generations):
            if other is generation or not other.is_readable or not _may_copy(generation, other):
                continue
            if self._rotation.has_been_truncated(other) and generation.is_gone:
                return False  # it was taken for what the other one goes on in
            found = self._compared(generation, fd, other)
            if found == _WAIT:
                self._catalog.rest(generation)
                self._catalog.leaving[generation] = None
                return False
            if found:
                if generation.is_passed:
                    self._leave_out(generation, fd)
                return not generation.is_passed
        return True

    def _compared(self, generation: Generation, fd: int, other: Generation) -> str:
        """Return whether a file is a copy of another (empty: no), after which it goes on where that one ends."""
        if generation.content.is_compressed:
            return self._compared_gzip(generation, fd, other)
        size, live = os.fstat(fd).st_size, self._catalog.open_files.held(other)
        if live is not None and not other.content.is_compressed and size <= os.fstat(live).st_size:
            is_sure = self._catalog.request.follow or size >= HEAD_BYTES
            generation.is_passed = is_sure and _ends_alike(fd, live, size)
            return "copy" if generation.is_passed else ""
        if len(other.head) < HEAD_BYTES and size != other.content.offset:
            return ""
        return self._go_on(generation, fd, other)

    def _compared_gzip(self, generation: Generation, fd: int, other: Generation) -> str:
        _, begin = content_of(fd)
        if not other.head or not begin.startswith(other.head[: max(1, len(begin))]):
            return ""
        live = self._catalog.open_files.held(other)
        if live is not None and os.fstat(live).st_size > other.content.offset:
            self._catalog.wake(other)
            return _WAIT  # what is packed goes on where this one ends only when it was read to its end
        # The last four bytes of a gzip file are the length of what was packed (RFC 1952, 2.3.1).
        if _last_bytes(fd, 4) == (other.content.offset & 0xFFFFFFFF).to_bytes(4, "little"):
            generation.is_passed = True
            return "copy"
        found = self._go_on(generation, fd, other)
        if not found and not generation.is_rested and not generation.is_final:
            return _WAIT
        return found

    def _go_on(self, generation: Generation, fd: int, other: Generation) -> str:
        """Let a file go on where another one ends, if it holds all that was read of that one."""
        if continued_in(fd, other.head, other.tail, other.content.offset) is None:
            return ""
        content, generation.head = content_of(fd)
        start = other.splitter.line_start
        before = content.skip_to(fd, start)
        if before is None:
            return ""
        generation.content, generation.tail, generation.replaces = content, before, other.key
        generation.splitter.line_start = start
        generation.tail_lines = None
        self._rotation.give_up_partial(other)
        return "rest"

    def _to_last_lines(self, generation: Generation, fd: int, lines: int) -> None:
        if generation.content.is_compressed:
            offset = _gzip_tail(fd, lines)
        else:
            size = min(generation.found_bytes, os.fstat(fd).st_size)
            offset = tail_offset(fd, lines, size, counts_partial=generation.is_final)
        content, generation.head = content_of(fd)
        generation.tail = content.skip_to(fd, offset) or b""
        generation.content = content
        generation.splitter.line_start = content.offset


def tail_offset(fd: int, lines: int, size: int, *, counts_partial: bool) -> int:
    """Return where the last lines begin of the first bytes of a file, looking backwards.

    Args:
        fd: The file.
        lines: How many lines.
        size: How many bytes.
        counts_partial: Whether a last line without end counts.
    """
    if size == 0 or (counts_partial and lines == 0):
        return size
    at, found = size, 0
    wanted = lines + (1 if not counts_partial or os.pread(fd, 1, size - 1) == b"\n" else 0)
    while at > 0:
        begin = max(0, at - _BLOCK_BYTES)
        block = os.pread(fd, at - begin, begin)
        there = block.count(b"\n")
        if found + there >= wanted:
            end = len(block)
            for _ in range(wanted - found):
                end = block.rindex(b"\n", 0, end)
            return begin + end + 1
        found += there
        at = begin
    return 0


def _gzip_tail(fd: int, lines: int) -> int:
    """Return where the last lines of what is packed begin; only their offsets are kept."""
    content = GzipContent()
    starts: deque[int] = deque([0], maxlen=lines + 1)
    while data := content.read(fd, 256 * 1024):
        end = data.find(b"\n")
        while end >= 0:
            starts.append(content.offset + end + 1)
            end = data.find(b"\n", end + 1)
        content.advance(data)
    has_partial = starts[-1] < content.offset
    if lines == 0:
        return content.offset
    return starts[1] if has_partial and len(starts) > lines else starts[0]


def _may_copy(generation: Generation, other: Generation) -> bool:
    """Return whether a file's name is that of a rotated copy of the other."""
    if generation.content.is_compressed:
        return not other.content.is_compressed
    return generation.where != other.path and generation.where.startswith((other.path, other.where))


def _ends_alike(fd: int, live: int, size: int) -> bool:
    begin = max(0, size - HEAD_BYTES)
    heads_alike = os.pread(fd, min(size, HEAD_BYTES), 0) == os.pread(live, min(size, HEAD_BYTES), 0)
    return heads_alike and os.pread(fd, size - begin, begin) == os.pread(live, size - begin, begin)


def _last_bytes(fd: int, count: int) -> bytes:
    return os.pread(fd, count, max(0, os.fstat(fd).st_size - count))
