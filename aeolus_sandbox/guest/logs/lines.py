"""What is made of log lines: the record that goes from the parsers in the container to the host.

Lines are sent in batches (`frames.Lines`): a table of what was made of them, as one JSON line, and then their texts as
they stand in the file, each with a newline. A record for each line would cost either side more than the line itself.
"""

from enum import IntFlag
from typing import Any, Final

import msgspec

LEVELS: Final = (
    "trace",
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""The one scale of levels, from the least to the most severe; a level travels as its index."""


class LineFlag(IntFlag):
    """What is to be known of a line beyond its content."""

    TRUNCATED = 1
    """It was longer than the limit, and its rest was left out."""
    INCOMPLETE = 2
    """Its end has not been written: the last line of a file that ends without a newline, or was cut."""
    INVALID_UTF8 = 4
    """Bytes of it are not UTF-8 and became U+FFFD."""
    NULS_REMOVED = 8
    """Runs of zero bytes around it were left out."""
    UNPARSED = 16
    """It does not fit the format."""
    NOT_OBJECT = 32
    """It is JSON, but not an object."""
    TOO_DEEP = 64
    """It is JSON that is nested too deeply to be read."""
    BAD_TIME = 128
    """What should be its time is none."""
    ZONE_ASSUMED = 256
    """Its time has no zone, and the configured one was taken."""
    JOINED = 512
    """It was made of several lines."""
    FIELDS_OMITTED = 2048
    """Its message and fields were left out, because the whole was too long."""
    HOST_LIST = 1024
    """An access line whose client is a list of hosts."""


class Parsed(msgspec.Struct, gc=False):
    """What a format makes of a line."""

    message: str | None = None
    """What the line says; None: all of it."""
    level: int | None = None
    """Index into `LEVELS`; None: not known."""
    time_us: int | None = None
    """Microseconds since 1970 in UTC; None: not known."""
    zone: str | None = None
    """The zone of the stamp, as it stands there (`Z`, `+05:30`), or the one that was assumed (see `ZONE_ASSUMED`)."""
    fields: dict[str, Any] | None = None
    """The fields; None: there are none, or they are to be read out of the line (see `fields.fields_of`)."""
    flags: int = 0
    """`LineFlag`s."""
    is_object: bool = False
    """Whether the line is a JSON object that was decoded, and `fields` is None because they are what it holds."""
    reader: str | None = None
    """Which of the `FIELD_READERS` reads them out of the line, where `fields` is None for that."""


class LineTable(msgspec.Struct, array_like=True):
    """What was made of the lines of a batch, column by column; their texts follow it.

    A column that holds one value holds it for all lines; otherwise it is as long as there are lines.
    """

    ends: list[int]
    """Offsets after the lines' last bytes in the file, line ends included (in what is compressed in it, where the file
    is compressed)."""
    starts: list[int]
    """Offsets of their first bytes; where it is one, the first line's: each other begins where the one before ends."""
    levels: list[int | None]
    times_us: list[int | None]
    zones: list[str | None]
    messages: list[str | msgspec.Raw | None]
    """What the lines say; None: all of it. A text may have been encoded already."""
    fields: list[msgspec.Raw]
    """Of each a JSON object; or null: the text is the object; or a string: the name of what reads them out of it."""
    flags: list[int]
    lengths: list[int | None]
    """True lengths in bytes of the lines that were truncated."""
    sizes: list[int]
    """How many bytes each text has; none: they end at their newlines."""


class Block(msgspec.Struct):
    """Neighbouring lines of one file, as they were read."""

    path: str
    """The file, by the name under which it was asked for or found."""
    lines: list[bytes]
    """The lines without their ends (`\\n` or `\\r\\n`), without zero bytes around them, and without a byte order mark."""
    start: int
    """Offset of the first line."""
    ends: list[int]
    """Offset after each line, its line end included."""
    flags: dict[int, int] = {}
    """`LineFlag`s of the lines that have any, by their index."""
    lengths: dict[int, int] = {}
    """True lengths in bytes of the lines that were truncated, by their index."""
    modified_s: float = 0.0
    """When the file was last written to, in seconds since 1970: what a date without a year is close to."""
