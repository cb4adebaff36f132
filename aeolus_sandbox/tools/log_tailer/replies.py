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
NULL: Final = msgspec.Raw(b"null")
"""The fields of a line that is its own object, where the guest leaves them out."""
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


class TailOpened(Frame, tag="tail_opened", frozen=True):
    """The folders are there."""

    op: Op
    mounts: Annotated[list[MountIdentity], msgspec.Meta(max_length=1000)]


class Lines(Frame, tag="lines", frozen=True):
    """A batch of one file; as many lines follow."""

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


class Line(msgspec.Struct, array_like=True, gc=False):
    """One line of a batch; see `lines.LogLine`. It holds nothing that could hold it."""

    raw: msgspec.Raw
    start: Count
    end: Count
    level: Annotated[int, msgspec.Meta(ge=0, lt=len(LEVELS))] | None = None
    time_us: TimeUs | None = None
    zone: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    message: Annotated[str, msgspec.Meta(max_length=4 * MAX_LINE_BYTES)] | None = None
    fields: msgspec.Raw = NULL
    """An object, or `null` (a `Raw` that may be None would let msgspec take nothing but `null`)."""
    flags: Annotated[int, msgspec.Meta(ge=0, le=MAX_FLAGS)] = 0
    length: Count | None = None


_reply_decoder: msgspec.json.Decoder[LogReply] = msgspec.json.Decoder(LogReply)
_lines_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def decode_log_reply(line: bytes) -> LogReply:
    """Return the reply that a line from a guest holds.

    Raises:
        FrameError: The line is not a reply.
    """
    return _checked(_reply_decoder.decode, line)


def decode_lines(payload: bytes) -> list[Line]:
    """Return the lines of a batch.

    Raises:
        FrameError: One is not a line.
    """
    return _checked(_lines_decoder.decode_lines, payload)


def _checked(decode: Callable[[bytes], T], data: bytes) -> T:
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"not what the log tailer sends: {error}") from error  # noqa: EM102
