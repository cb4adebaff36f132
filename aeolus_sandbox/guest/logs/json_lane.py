"""The fast lane: a block of JSON lines is decoded at once, and what is usual in them goes on without being made anew.

Most structured logs are nothing else, and line by line they cost twice as much. Whatever is not usual (a level that is
not known, a time in another key, a line that is no object) goes that other way, which decides what it is.
"""

import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aeolus_sandbox.guest.logs.batches import ITS_OWN_FIELDS
from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.formats.json_lines import MAX_DEPTH
from aeolus_sandbox.guest.logs.levels import level_of_value, spellings
from aeolus_sandbox.guest.logs.timestamps import Stamps
from aeolus_sandbox.guest.logs.usual import CLOSED_FOR, UsualLines

if TYPE_CHECKING:
    from types import FrameType

_LEVELS: Final[dict[Any, int]] = {
    **dict(spellings()),
    **{number: level for number in range(100) if (level := level_of_value(number)) is not None},
}
"""The usual ways to write a level; what is not here is looked up with more patience elsewhere."""
_MILLISECONDS: Final = range(10**11, 10**14)


class _Usual(msgspec.Struct, gc=False):
    """The keys that loggers use for most lines, and those that say that it is another kind of line."""

    level: int | str | None = None
    time: int | float | str | None = None
    msg: Any = None
    message: Any = None
    log: Any = None
    """Docker's text, or an object with the level."""
    short_message: Any = None
    """GELF, whose levels are other numbers."""


# Between the lines stands a number of ours. The decoder takes a newline for mere space, so that a value might span
# lines and a line hold two; but after a number inside a value, no object can begin, which is how every line does.
_BETWEEN: Final = b"\n0\n"
_decode_lines: Final = msgspec.json.Decoder(_Usual | int).decode_lines
_BEGINNING: Final = _BETWEEN + b"{"
_CLOSING: Final = ord("}")


class JsonLane:
    """Takes blocks of JSON lines of one file."""

    def __init__(self, context: ParseContext) -> None:
        self._stamps = Stamps(context)
        self._closed_for = 0

    def take(self, lines: list[bytes]) -> UsualLines | None:
        """Return what was made of the lines; None when they are not all JSON objects."""
        if self._closed_for or lines[0][:1] != b"{":
            self._closed_for = max(0, self._closed_for - 1)
            return None
        try:
            known = _decoded(lines)
        except (ValueError, RecursionError):
            known = []
        if len(known) != 2 * len(lines) - 1:
            self._closed_for = CLOSED_FOR
            return None
        return self._usual(known[::2], lines)

    def _usual(self, known: list[_Usual], lines: list[bytes]) -> UsualLines:
        level_of, milliseconds, stamp = _LEVELS.get, _MILLISECONDS, self._stamp
        levels: list[int | None] = []
        times_us: list[int | None] = []
        zones: list[str | None] = []
        messages: list[str] = []
        for line, text in zip(known, lines, strict=True):
            level, moment, message = level_of(line.level), line.time, line.msg
            zone = None
            if message is None:
                message = line.message
            # Spaces after the object belong to the line, which is then not its own fields to the byte.
            if (
                type(message) is not str
                or line.log is not None
                or line.short_message is not None
                or text[-1] != _CLOSING
            ):
                level = None
            elif type(moment) is int and moment in milliseconds:
                moment *= 1000
            elif type(moment) is not str or (stamped := stamp(moment)) is None:
                level = None
            else:
                moment, zone = stamped
            levels.append(level)
            times_us.append(moment)  # type: ignore[arg-type]
            zones.append(zone)
            messages.append(message)
        return UsualLines(levels, times_us, zones, messages, ITS_OWN_FIELDS)

    def _stamp(self, text: str) -> tuple[int, str | None] | None:
        """Return the time and the zone of a text, where there is nothing else to say of them."""
        time_us, zone, flags = self._stamps.parse(text)
        return None if time_us is None or flags else (time_us, zone)


def _decoded(lines: list[bytes]) -> list[Any]:
    """Return the objects of the lines, and what is between them; not as many where the lines are not one object each.

    Raises:
        ValueError: One is not JSON, or not UTF-8.
        RecursionError: One is nested more than `MAX_DEPTH` deep.
    """
    block = _BETWEEN.join(lines)
    if block.count(_BEGINNING) != len(lines) - 1:
        return []
    if not block.isascii():
        block.decode()
    limit = sys.getrecursionlimit()
    # The decoder counts as deep calls do (CPython 3.11, Py_EnterRecursiveCall).
    sys.setrecursionlimit(_depth() + MAX_DEPTH)
    try:
        return _decode_lines(block)
    finally:
        sys.setrecursionlimit(limit)


def _depth() -> int:
    """Return how deep the calls are here."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way
    depth = 0
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return depth
