r"""Bytes to lines, block by block: line ends, zero bytes, byte order marks, and lines that are too long.

What is unusual is looked for once a block (`b"\0" in data`), so that a block without it costs one split and one sum.
"""

from itertools import accumulate
from typing import TYPE_CHECKING, Final

from aeolus_sandbox.guest.logs.lines import LineFlag

if TYPE_CHECKING:
    from collections.abc import Callable

UTF8_MARK: Final = b"\xef\xbb\xbf"


class Split:
    """The lines of one block, as `lines.Block` has them."""

    __slots__ = ("ends", "flags", "lengths", "lines", "start")

    def __init__(self, start: int, lines: list[bytes], ends: list[int]) -> None:
        self.start = start
        self.lines = lines
        self.ends = ends
        self.flags: dict[int, int] = {}
        self.lengths: dict[int, int] = {}


class LineSplitter:
    """Splits what is read of one file; holds no more than one line, and of that no more than the limit."""

    def __init__(self, *, offset: int, max_line_bytes: int, keeps_nuls: bool) -> None:
        self.on_nuls: Callable[[int, int], None] = lambda offset, count: None
        """Is told of zero bytes that are left out: the offset of their line, and how many."""
        self.line_start = offset
        """Offset of the line that has not been given yet."""
        self._max = max_line_bytes
        self._keeps_nuls = keeps_nuls
        self._pending = b""
        self._skipped = 0
        """How many bytes after `_pending` were left out of the line that is too long."""
        self._nuls = 0
        """How many zero bytes before `_pending` were left out."""
        self._ends_with_return = False

    @property
    def has_partial(self) -> bool:
        """Whether a line has begun that has no end yet."""
        return bool(self._pending or self._nuls or self._skipped)

    def feed(self, data: bytes) -> Split | None:
        """Return the lines that end in the next bytes; None: none does."""
        first_end = data.find(b"\n")
        if first_end < 0:
            self._hold(data)
            return None
        is_plain = not (self._nuls or self._skipped)
        if is_plain and self._pending:
            data = self._pending + data
            self._pending = b""
        split = self._plain(data) if is_plain and b"\0" not in data else self._odd(data)
        return split if split.lines else None

    def finish(self) -> Split | None:
        """Return the line that has no end, as far as it was written; None: there is none."""
        if not self.has_partial:
            return None
        split = Split(self.line_start, [], [])
        end = self.line_start + self._nuls + len(self._pending) + self._skipped
        self._add(split, b"", end, LineFlag.INCOMPLETE)
        self._take_mark(split)
        self.line_start = end
        return split if split.lines else None

    def _plain(self, data: bytes) -> Split:
        start = self.line_start
        lines = data.split(b"\n")
        rest = lines.pop()
        lengths = list(map(len, lines))
        ends = list(accumulate([length + 1 for length in lengths], initial=start))
        del ends[0]
        split = Split(start, lines, ends)
        if b"\r" in data:
            split.lines = [line.removesuffix(b"\r") for line in lines]
        if max(lengths) > self._max:
            self._cut(split)
        self._take_mark(split)
        self.line_start = ends[-1]
        self._hold(rest)
        return split

    def _cut(self, split: Split) -> None:
        for at, line in enumerate(split.lines):
            if len(line) > self._max:
                split.lines[at] = line[: self._max]
                split.flags[at] = LineFlag.TRUNCATED
                split.lengths[at] = len(line)

    def _take_mark(self, split: Split) -> None:
        if split.start == 0 and split.lines and split.lines[0].startswith(UTF8_MARK):
            split.lines[0] = split.lines[0].removeprefix(UTF8_MARK)
            if 0 in split.lengths:
                split.lengths[0] -= len(UTF8_MARK)

    def _odd(self, data: bytes) -> Split:
        """Split where there are zero bytes, or where the first line goes on that was not held whole."""
        split = Split(self.line_start, [], [])
        lines = data.split(b"\n")
        rest = lines.pop()
        for line in lines:
            end = self.line_start + self._nuls + len(self._pending) + self._skipped + len(line) + 1
            self._add(split, line, end, 0)
            self.line_start = end
        self._take_mark(split)
        self._hold(rest)
        return split

    def _hold(self, data: bytes) -> None:
        """Keep what a line has so far, as far as it is to be given."""
        if data:
            self._ends_with_return = data.endswith(b"\r")
        if not self._keeps_nuls and not self._pending and not self._skipped:
            kept = data.lstrip(b"\0")
            self._nuls += len(data) - len(kept)
            data = kept
        # One more than the limit, so that a line end of two bytes does not make a line too long.
        room = max(0, self._max + 1 - len(self._pending))
        self._pending += data[:room]
        self._skipped += max(0, len(data) - room)

    def _add(self, split: Split, rest: bytes, end: int, flags: int) -> None:
        """Add the line that is held, with its rest."""
        self._hold(rest)
        line, skipped, nuls = self._pending, self._skipped, self._nuls
        self._pending, self._skipped, self._nuls = b"", 0, 0
        length = len(line) + skipped
        if self._ends_with_return and length and not flags:
            length -= 1
            line = line[:length]
        self._ends_with_return = False
        if not self._keeps_nuls and not skipped:
            kept = line.strip(b"\0")
            nuls += len(line) - len(kept)
            length -= len(line) - len(kept)
            line = kept
        if nuls:
            self.on_nuls(self.line_start, nuls)
            flags |= LineFlag.NULS_REMOVED
            if not line:
                return
        at = len(split.lines)
        if length > self._max:
            line = line[: self._max]
            flags |= LineFlag.TRUNCATED
            split.lengths[at] = length
        if flags:
            split.flags[at] = int(flags)
        split.lines.append(line)
        split.ends.append(end)
