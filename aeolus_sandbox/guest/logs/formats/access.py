"""Access lines of web servers: the Common Log Format and the Combined one (Apache, mod_log_config; nginx, log_format)."""

from typing import Final

from aeolus_sandbox.guest.logs.access_fields import STATUSES, access_fields, is_size
from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.lines import LEVELS, LineFlag, Parsed
from aeolus_sandbox.guest.logs.timestamps import Stamps

_HOST_LIST: Final = int(LineFlag.HOST_LIST)
_INFO: Final = LEVELS.index("info")
_CLASSES: Final = {4: LEVELS.index("warning"), 5: LEVELS.index("error")}
STATUS_LEVELS: Final = {text: _CLASSES.get(status // 100, _INFO) for text, status in STATUSES.items()}
"""The level of a line by the three digits of its status."""
_COMBINED_PIECES: Final = 7
_COMMON_PIECES: Final = 3


class AccessLines:
    """Reads access lines; their fields are those of `access_fields`, without the time.

    The message is the request. The level is error for a status of 5xx, warning for 4xx, and info for all others.
    """

    def __init__(self, context: ParseContext, combined: bool | None) -> None:
        """Read Combined (True), Common (False: what follows it is extra), or whichever a line is (None)."""
        self._stamps = Stamps(context)
        self._combined = combined

    def parse(self, line: str) -> Parsed | None:
        """Return what an access line holds; None when the line is none.

        A line as servers write most of them is only looked through here, and its fields are read when they are needed.
        """
        pieces = line.split('"')
        count = len(pieces)
        if count == _COMBINED_PIECES and self._combined is not False and pieces[4] == " " and not pieces[6]:
            reader = "combined"
        elif count == _COMMON_PIECES and not self._combined:
            reader = "clf"
        else:
            return self._parse_odd(line)
        client, _, stamp = pieces[0].partition(" [")
        numbers, request = pieces[2].split(), pieces[1]
        if len(numbers) != 2 or client.count(" ") != 2 or "\\" in line or "," in client or request == "-":
            return self._parse_odd(line)
        level = STATUS_LEVELS.get(numbers[0])
        if level is None or client[0] == " " or stamp[-2:] != "] " or not is_size(numbers[1]):
            return None
        time_us, zone, flags = self._stamps.parse(stamp[:-2])
        return Parsed(request, level, time_us, zone, None, flags, False, reader)

    def _parse_odd(self, line: str) -> Parsed | None:
        fields = access_fields(line, combined=self._combined)
        if fields is None:
            return None
        time_us, zone, flags = self._stamps.parse(fields.pop("time"))
        if "," in fields["host"]:
            flags |= _HOST_LIST
        return Parsed(
            fields["request"], STATUS_LEVELS[f"{fields['status']:03}"], time_us, zone, fields, flags
        )
