"""What a format is: it makes something of a line, or says that the line is not one of its own."""

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Protocol

from aeolus_sandbox.guest.logs.lines import Parsed


@dataclass(slots=True)
class ParseContext:
    """What the reading of stamps depends on beyond the line."""

    zone: tzinfo = UTC
    """The zone of stamps without one."""
    zone_name: str = "UTC"
    reference: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """A time close to the line's, such as the file's last change: what decides the year of a date without one."""


class LineParser(Protocol):
    """One format at work on the lines of one file, in their order."""

    def parse(self, line: str) -> Parsed | None:
        """Return what the line holds, or None when it is not of this format; never raises, whatever the line is.

        Takes time in proportion to the line's length.
        """
        ...
