"""What the fast lanes make of a block of lines of which most are usual ones of one format."""

from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

CLOSED_FOR: Final = 16
"""For how many blocks a lane is closed after one that it could not take."""


@dataclass(slots=True)
class UsualLines:
    """What was made of a block of lines, column by column."""

    levels: list[int | None]
    """None: the line is not a usual one, and what the other columns say of it means nothing."""
    times_us: list[int | None]
    zones: list[str | None]
    messages: list[str]
    """Each a part of its line."""
    fields: msgspec.Raw
    """How the fields of all of them are read; see `lines.LineTable`."""


class Lane(Protocol):
    """Takes blocks of lines of one file, and makes of each line what the format's parser would, or nothing."""

    def take(self, lines: list[bytes]) -> UsualLines | None:
        """Return what was made of the lines; None when the block goes line by line."""
        ...
