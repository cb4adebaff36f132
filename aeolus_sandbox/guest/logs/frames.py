"""The frames between the host and the log tailer in its container; how they travel, `guest.frames` says.

The host sends one `Tail`, then `Room` whenever its reader has made some, and `StopTail` to end it in order.
The guest answers with `TailOpened`, then `Lines`, `Reached` and `Notice` frames, and one `TailDone` at the end.
"""

from typing import Final

import msgspec

from aeolus_sandbox.guest.frames import Fault, Frame, FrameError, Op

MAX_BATCH_LINES: Final = 1000
"""How many lines follow one `Lines` frame at most."""
MAX_LINE_BYTES: Final = 1024 * 1024
"""The most that `Tail.max_line_bytes` may ask for."""
MAX_BATCH_BYTES: Final = 8 * MAX_LINE_BYTES
"""How many bytes a batch comes to at most, as it is sent: as JSON, a control character takes six."""
MAX_NOTICES: Final = 1000
"""How many notices a guest sends, before it only counts them."""
NOTICES: Final = (
    "truncated",
    "rotated",
    "appeared",
    "gone",
    "lost",
    "refused",
    "unreadable",
    "nuls",
    "skipped",
    "polling",
    "limit",
)
"""What a `Notice` can be about; `LogNotice` of the tool says what each means."""


class FilePosition(msgspec.Struct, frozen=True):
    """How far one file has been read; with what tells the file from its successor under the same name."""

    path: str
    device: int
    inode: int
    offset: int
    """Offset of the first byte that has not been read (in what is compressed, where the file is compressed)."""
    head_bytes: int = 0
    """How many bytes of the file's beginning `head_hash` is of."""
    head_hash: str = ""
    """SHA-256 of the file's beginning, in hexadecimal digits."""
    done: bool = False
    """Whether it was read to its end, and more was not expected: it was rotated away, or nothing was followed."""
    replaces: tuple[int, int] | None = None
    """Device and inode of the file that this one goes on for: the position of that one holds no more."""


class TailPath(msgspec.Struct, frozen=True):
    """One of the paths to read, by the host's name."""

    path: str
    is_pattern: bool = False


class Join(msgspec.Struct, frozen=True):
    """How lines are joined to events."""

    start: str | None = None
    """RE2 pattern of a line that begins an event; None: whatever does not look like a continuation (a stack trace)."""
    max_lines: int = 500
    wait_s: float = 1.0
    """How long an event waits for its next line when nothing more is written."""


class Tail(Frame, tag="tail", frozen=True):
    """Read log files; the first request, and the only one of its kind."""

    op: Op
    paths: list[TailPath]
    mounts: list[str]
    """The host's folders that are mounted, each below `/host` under its own path."""
    follow: bool = False
    format: str = "auto"
    level: int | None = None
    """The least level to pass on."""
    keeps_unknown_level: bool = False
    """Whether lines without a level pass a filter of levels."""
    pattern: str | None = None
    """RE2 pattern that must be found in a line."""
    exclude: str | None = None
    """RE2 pattern that must not."""
    since_us: int | None = None
    until_us: int | None = None
    equals: dict[str, str] = msgspec.field(default_factory=dict)
    """Fields (dotted names reach into objects) and the texts that they must be."""
    tail_lines: int | None = None
    """How many lines of the end of each file that is there already to begin with; None: all."""
    cursor: list[FilePosition] = msgspec.field(default_factory=list)
    join: Join | None = None
    zone: str = "UTC"
    """IANA name of the zone of stamps without one."""
    max_line_bytes: int = 64 * 1024
    uses_events: bool = True
    """Whether to be told of changes by the kernel; looking at the files goes on beside it."""
    poll_s: float = 1.0
    """How often to look at the files."""


class Room(Frame, tag="room", frozen=True):
    """Say how many bytes of batches the host has taken in all, so that about `WINDOW_BYTES` may be under way."""

    op: Op
    taken_bytes: int


class StopTail(Frame, tag="stop_tail", frozen=True):
    """End the reading; answered by `TailDone`."""

    op: Op


LogRequest = Tail | Room | StopTail

WINDOW_BYTES: Final = 512 * 1024
"""How many bytes of batches may be under way before the guest waits for `Room`."""


class MountIdentity(msgspec.Struct, frozen=True):
    """What a mounted folder is, as the guest sees it: the host compares it with what it has checked."""

    path: str
    device: int
    inode: int
    mode: int = 0
    """Kind and permissions, as `st_mode` of stat(2)."""
    owner: int = 0
    group: int = 0
    changed_ns: int = 0
    """When its entries or its own properties changed last, in nanoseconds since 1970."""


class TailOpened(Frame, tag="tail_opened", frozen=True):
    """The folders are there; nothing has been read."""

    op: Op
    mounts: list[MountIdentity]


class Lines(Frame, tag="lines", frozen=True):
    """A batch of one file: a `LineTable` and the texts of the lines follow."""

    op: Op
    path: str
    count: int
    """How many lines there are."""
    size: int
    """How many bytes follow, newlines included."""
    position: FilePosition
    """How far the file has been read with this batch."""


class Reached(Frame, tag="reached", frozen=True):
    """How far a file has been read of which nothing was passed on."""

    op: Op
    position: FilePosition


class Notice(Frame, tag="notice", frozen=True):
    """Something about a file that is not a line of it."""

    op: Op
    kind: str
    """One of `NOTICES`."""
    text: str
    path: str | None = None
    offset: int | None = None
    count: int | None = None
    """How many bytes or files it is about."""


class TailDone(Frame, tag="tail_done", frozen=True):
    """All has been read, or the reading was stopped."""

    op: Op
    lines_read: int
    lines_matched: int
    """How many were passed on."""
    lines_dropped: int
    """How many the filter left out."""
    lines_unparsed: int
    bytes_read: int
    files: list[str]
    rotations: int
    notices_left_out: int
    """How many more notices there were than `MAX_NOTICES`."""
    positions: list[FilePosition]


LogReply = TailOpened | Lines | Reached | Notice | TailDone | Fault

_request_decoder: msgspec.json.Decoder[LogRequest] = msgspec.json.Decoder(LogRequest)
_reply_decoder: msgspec.json.Decoder[LogReply] = msgspec.json.Decoder(LogReply)


def decode_log_request(line: bytes) -> LogRequest:
    """Return the request that a line from the host holds.

    Raises:
        FrameError: The line is not a request.
    """
    try:
        return _request_decoder.decode(line)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise FrameError(f"not a request: {error}") from error  # noqa: EM102


def decode_log_reply(line: bytes) -> LogReply:
    """Return the reply that a line from a guest holds.

    Raises:
        FrameError: The line is not a reply.
    """
    try:
        return _reply_decoder.decode(line)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise FrameError(f"not a reply: {error}") from error  # noqa: EM102
