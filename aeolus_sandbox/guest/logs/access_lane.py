"""The fast lane of access lines: a block in which every line is as servers write most of them is looked through at once."""

import re
from collections.abc import Callable
from typing import Final

from aeolus_sandbox.guest.logs.batches import READ_BY
from aeolus_sandbox.guest.logs.formats.access import STATUS_LEVELS
from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.timestamps import Stamp, Stamps
from aeolus_sandbox.guest.logs.usual import CLOSED_FOR, UsualLines

# What may begin like a line of another format is left out of it, so that `auto` too finds nothing else in such a line.
_COMMON: Final = r'^[0-9a-z:][^ "\\,=\[\n]*+ - [^ "\\\[\n]++ \[([^]"\\\[\n]++)\] "((?!-")[^"\\\n]*+)" ([0-9]{3}) (?:[0-9]{1,20}|-)'
_SHAPES: Final = {
    "clf": re.compile(_COMMON + "$", re.MULTILINE),
    "combined": re.compile(_COMMON + r' "[^"\\\n]*+" "[^"\\\n]*+"$', re.MULTILINE),
}


class AccessLane:
    """Takes blocks of access lines of one file."""

    def __init__(
        self, context: ParseContext, shapes: tuple[str, ...], *, is_open: Callable[[], bool] = lambda: True
    ) -> None:
        """Take lines of some shapes, `clf` or `combined`, as long as the lane is open."""
        self._stamps = Stamps(context)
        self._shapes = shapes
        self._is_open = is_open
        self._closed_for = 0

    def take(self, lines: list[bytes]) -> UsualLines | None:
        """Return what was made of the lines; None when they are not all plain access lines of one shape."""
        if self._closed_for or not self._is_open():
            self._closed_for = max(0, self._closed_for - 1)
            return None
        try:
            text = b"\n".join(lines).decode()
        except UnicodeDecodeError:
            text = ""
        for shape in self._shapes:
            found = _SHAPES[shape].findall(text)
            if len(found) == len(lines):
                return self._usual(shape, found)
        self._closed_for = CLOSED_FOR
        return None

    def _usual(self, shape: str, found: list[tuple[str, str, str]]) -> UsualLines:
        stamps: dict[str, Stamp] = {stamp: self._stamps.parse(stamp) for stamp in {each[0] for each in found}}
        known = [stamps[stamp] for stamp, _, _ in found]
        levels: list[int | None] = [STATUS_LEVELS[status] for _, _, status in found]
        if any(flags or time_us is None for time_us, _, flags in stamps.values()):
            levels = [
                None if flags or time_us is None else level
                for level, (time_us, _, flags) in zip(levels, known, strict=True)
            ]
        times_us, zones, _ = zip(*known, strict=True)
        return UsualLines(
            levels, list(times_us), list(zones), [request for _, request, _ in found], READ_BY[shape]
        )
