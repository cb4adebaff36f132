"""How far the files have been read: by the guest, and by the reader of the session, who is behind it."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from aeolus_sandbox.tools.log_tailer.models import LogCursor, LogPosition
from aeolus_sandbox.tools.log_tailer.replies import MAX_FILES, Position

MAX_PENDING: Final = 10_000
"""How many changes are remembered that the reader has not come to. It is further behind only where its policy lets
chunks go, and these it will not see."""
MAX_DONE: Final = 256
"""How many files of one name are remembered after they were done with, when it is time to forget some: the newest."""

_Places = dict[tuple[int, int], Position]


@dataclass(slots=True)
class _Step:
    """A position that holds once a chunk has been taken."""

    first: int
    """Number of the first chunk that belongs to it."""
    last: int
    position: Position


class ReadPositions:
    """The positions of all files, in the order of the chunks."""

    def __init__(self, start: LogCursor) -> None:
        self._taken: _Places = {}
        self._prune_at = MAX_DONE
        self._pending: deque[_Step] = deque()
        self._last = 0
        self._joins = True
        for position in start.positions:
            self._take(Position(**position.model_dump()))

    def note(self, position: Position, *, last: int) -> None:
        """Note how far a file has been read.

        Args:
            position: How far.
            last: Number of the last chunk so far; those after the one that was named before are of this file.
        """
        first, self._last = self._last + 1, last
        newest = self._pending[-1] if self._pending else None
        joins, self._joins = self._joins, True
        if joins and newest is not None and _continues(newest.position, position):
            newest.last, newest.position = last, position
            return
        self._pending.append(_Step(first, last, position))
        if len(self._pending) > MAX_PENDING:
            self._take(self._pending.popleft().position)

    def skip(self, *, last: int) -> None:
        """Note a chunk that is of no file's content; what it ends at says nothing of a position."""
        self._last, self._joins = last, False

    def after(self, sequence: int, end_offset: int) -> list[Position]:
        """Return how far the files have been read when this chunk was the last that the reader took.

        Args:
            sequence: The chunk's number; later calls name the same or later ones.
            end_offset: Where it ends in its file.
        """
        while self._pending and self._pending[0].last <= sequence:
            self._take(self._pending.popleft().position)
        reached = dict(self._taken)
        if self._pending and self._pending[0].first <= sequence:
            position = self._pending[0].position
            _put(reached, msgspec.structs.replace(position, offset=end_offset, done=False))
        return list(reached.values())

    def all(self) -> list[Position]:
        """Return how far the guest has read."""
        reached = dict(self._taken)
        for step in self._pending:
            _put(reached, step.position)
        return list(reached.values())

    def _take(self, position: Position) -> None:
        _put(self._taken, position)
        if len(self._taken) > self._prune_at:
            self._prune()
            self._prune_at = 2 * len(self._taken) + MAX_DONE  # so that each costs no more than a few looks

    def _prune(self) -> None:
        """Forget files that were done with, the oldest first: most of them are gone by now."""
        of_name: Counter[str] = Counter()
        done = [(key, position.path) for key, position in self._taken.items() if position.done]
        for count, (key, path) in enumerate(reversed(done)):
            of_name[path] += 1
            if of_name[path] > MAX_DONE or count >= MAX_FILES:
                del self._taken[key]


def cursor_of(positions: Iterable[Position]) -> LogCursor:
    """Return the cursor of these positions."""
    return LogCursor(
        positions=tuple(
            LogPosition(**msgspec.to_builtins(msgspec.structs.replace(position, replaces=None)))
            for position in positions
        )
    )


def _put(places: _Places, position: Position) -> None:
    """Put a position among those that hold, in the place of the one that it replaces: older files stay first."""
    key, replaced = _key(position), position.replaces
    position = msgspec.structs.replace(position, replaces=None)
    before = places.get(replaced) if replaced is not None and replaced != key else None
    if replaced is None or before is None or not _is_of_same(before, position):
        places[key] = position
    elif key in places:
        places[key] = position
        del places[replaced]
    else:
        kept = [(key, position) if each == replaced else (each, at) for each, at in places.items()]
        places.clear()
        places.update(kept)


def _is_of_same(before: Position, after: Position) -> bool:
    """Return whether two positions may be of the same content: an inode is another file's soon after a deletion."""
    heads_alike = before.head_bytes < after.head_bytes or before.head_hash == after.head_hash
    return heads_alike and before.head_bytes <= after.head_bytes and before.offset <= after.offset


def _key(position: Position) -> tuple[int, int]:
    return position.device, position.inode  # a file keeps them when it is renamed


def _continues(before: Position, after: Position) -> bool:
    """Return whether a position is a later one of the same content, so that any chunk's end lies between the two."""
    same = (before.path, before.head_bytes, before.head_hash) == (
        after.path,
        after.head_bytes,
        after.head_hash,
    )
    return same and _key(before) == _key(after) and before.offset <= after.offset and not before.done
