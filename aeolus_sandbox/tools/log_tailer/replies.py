"""What the host takes from the guest of the log tailer: the reply frames, with every size and every range bounded.

Boundary: the guest reads hostile files with the rights of a sandbox, and may have been taken over.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeVar

import msgspec

from aeolus_sandbox.guest.frames import Frame, FrameError, Op
from aeolus_sandbox.guest.logs.frames import MAX_BATCH_BYTES, MAX_BATCH_LINES, MAX_LINE_BYTES
from aeolus_sandbox.guest.logs.lines import LEVELS, LineFlag

T = TypeVar("T")

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
MAX_FLAGS: Final = 2 * max(LineFlag) - 1
MAX_FILES: Final = 100_000
"""How many files a result can name."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
ShortText = Annotated[str, msgspec.Meta(max_length=64 * 1024)]
PathText = Annotated[str, msgspec.Meta(max_length=8 * 1024)]
TimeUs = Annotated[
    int,
    msgspec.Meta(
        ge=(datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND,
        le=(datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND,
    ),
]


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far one file has been read; see `frames.FilePosition`."""

    path: PathText
    device: int
    inode: int
    offset: Count
    head_bytes: Count = 0
    head_hash: Annotated[str, msgspec.Meta(max_length=64, pattern="^[0-9a-f]*$")] = ""
    done: bool = False
    replaces: tuple[int, int] | None = None


class MountIdentity(msgspec.Struct, frozen=True):
    """What a mounted folder is, as the guest sees it."""

    path: PathText
    device: int
    inode: int
    mode: int = 0
    owner: int = 0
    group: int = 0
    changed_ns: int = 0


class TailOpened(Frame, tag="tail_opened", frozen=True):
    """The folders are there."""

    op: Op
    mounts: Annotated[list[MountIdentity], msgspec.Meta(max_length=1000)]


class Lines(Frame, tag="lines", frozen=True):
    """A batch of one file; see `frames.Lines`."""

    op: Op
    path: PathText
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_BATCH_LINES)]
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_BATCH_BYTES)]
    position: Position


class Reached(Frame, tag="reached", frozen=True):
    """How far a file has been read of which nothing was passed on."""

    op: Op
    position: Position


class Notice(Frame, tag="notice", frozen=True):
    """Something about a file that is not a line of it."""

    op: Op
    kind: ShortText
    text: ShortText
    path: PathText | None = None
    offset: Count | None = None
    count: Count | None = None


class TailDone(Frame, tag="tail_done", frozen=True):
    """All has been read, or the reading was stopped."""

    op: Op
    lines_read: Count
    lines_matched: Count
    lines_dropped: Count
    lines_unparsed: Count
    bytes_read: Count
    files: Annotated[list[PathText], msgspec.Meta(max_length=MAX_FILES)]
    rotations: Count
    notices_left_out: Count
    positions: Annotated[list[Position], msgspec.Meta(max_length=MAX_FILES)]


class Fault(Frame, tag="fault", frozen=True):
    """The guest itself failed and ends."""

    message: ShortText


LogReply = TailOpened | Lines | Reached | Notice | TailDone | Fault


Level = Annotated[int, msgspec.Meta(ge=0, lt=len(LEVELS))]
Zone = Annotated[str, msgspec.Meta(max_length=64)]
Message = Annotated[str, msgspec.Meta(max_length=4 * MAX_LINE_BYTES)]
Flags = Annotated[int, msgspec.Meta(ge=0, le=MAX_FLAGS)]
_PER_LINE: Final = msgspec.Meta(min_length=1, max_length=MAX_BATCH_LINES)


class LineTable(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """What was made of the lines of a batch, column by column; see `lines.LineTable`."""

    ends: Annotated[list[Count], _PER_LINE]
    starts: Annotated[list[Count], _PER_LINE]
    levels: Annotated[list[Level | None], _PER_LINE]
    times_us: Annotated[list[TimeUs | None], _PER_LINE]
    zones: Annotated[list[Zone | None], _PER_LINE]
    messages: Annotated[list[Message | None], _PER_LINE]
    fields: Annotated[list[msgspec.Raw], _PER_LINE]
    flags: Annotated[list[Flags], _PER_LINE]
    lengths: Annotated[list[Count | None], _PER_LINE]
    sizes: Annotated[list[Count], msgspec.Meta(max_length=MAX_BATCH_LINES)]

    def check(self) -> None:
        """Check that every column is of one value or of one for each line.

        Raises:
            FrameError: One is not.
        """
        columns = (
            *(self.starts, self.levels, self.times_us, self.zones, self.messages, self.fields, self.flags),
            *(self.lengths, self.sizes or self.ends),
        )
        may_be = {1, len(self.ends)}
        if not may_be.issuperset({len(column) for column in columns}) or (
            self.sizes and len(self.sizes) != len(self.ends)
        ):
            raise FrameError("columns of different lengths")  # noqa: EM101


_reply_decoder: msgspec.json.Decoder[LogReply] = msgspec.json.Decoder(LogReply)
_table_decoder: msgspec.json.Decoder[LineTable] = msgspec.json.Decoder(LineTable)


def decode_log_reply(line: bytes) -> LogReply:
    """Return the reply that a line from a guest holds.

    Raises:
        FrameError: The line is not a reply.
    """
    return _checked(_reply_decoder.decode, line)


def decode_table(line: bytes) -> LineTable:
    """Return the table of a batch.

    Raises:
        FrameError: It is none.
    """
    table = _checked(_table_decoder.decode, line)
    table.check()
    return table


def _checked(decode: Callable[[bytes], T], data: bytes) -> T:
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"not what the log tailer sends: {error}") from error  # noqa: EM102
