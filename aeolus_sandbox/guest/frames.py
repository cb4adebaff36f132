"""The frames between host and guest: one JSON object a line, defined once for both sides.

The host writes requests to the guest's stdin, the guest writes replies to its stdout; nothing else joins the two.
Every frame but `Ready` and `KernelDied` carries the operation that it belongs to (`op`), so that one guest can serve
many operations at once; `op` 0 is output that belongs to no operation.

This module is imported by the host and, copied into the images, by the guest: it knows nothing of either.
"""

from typing import Annotated, Any, Final, TypeVar

import msgspec

PROTOCOL_VERSION: Final = 1
MAX_FRAME_BYTES: Final = 32 * 1024 * 1024
"""The longest line that either side accepts, in bytes."""
MAX_TEXT_CHARACTERS: Final = 64 * 1024
"""The longest text that a guest puts into one `Stream` frame."""
FILE_PIECE_BYTES: Final = 256 * 1024
"""How much of a file one `WriteFile` or `FilePiece` frame carries."""
MAX_CHANGES: Final = 1000
"""How many files one `Changes` frame names."""
HEAD_BYTES: Final = 64
"""How much of a file's beginning a `FileChange` shows."""

T = TypeVar("T")

Op = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Number of an operation, chosen by the host."""


class FrameError(ValueError):
    """A line is not a frame: broken JSON, an unknown kind, a wrong type, or too long."""


class Frame(msgspec.Struct, frozen=True, tag_field="frame", kw_only=True):
    """Base of all frames."""


# Requests: host to guest.


class Execute(Frame, tag="execute", frozen=True):
    """Run a piece of code in the kernel; answered by output frames and one `Done`, or by `KernelDied`."""

    op: Op
    code: str
    allow_stdin: bool = False
    """Whether its questions are passed on (`InputRequest`); else they get the end of input, or an error."""
    chart_data: bool = False
    """Whether figures come with the data in them, from kernels that can tell."""
    list_changes: bool = False
    """Whether to look at once what it has changed when it has ended, as if `ListChanges` had come with its end."""


class InputReply(Frame, tag="input_reply", frozen=True):
    """Answer a question of a cell; without a question that waits, it does nothing."""

    op: Op
    """The operation of the cell."""
    text: str | None
    """The line without its end; None is the end of input."""


class Interrupt(Frame, tag="interrupt", frozen=True):
    """Interrupt a cell: one that waits is withdrawn (`aborted`), one that has ended is left alone."""

    op: Op
    """The operation of the cell; 0 means the one that runs now."""


class KillKernel(Frame, tag="kill_kernel", frozen=True):
    """Kill the kernel and all that it started; answered by `KernelDied`, and a `Ready` of the next kernel."""

    op: Op


class WriteFile(Frame, tag="write_file", frozen=True):
    """Write one piece of a file below the working directory; answered by `Done` after the last piece."""

    op: Op
    path: str
    data: bytes
    """The piece (base64 in JSON)."""
    first: bool
    last: bool


class ListChanges(Frame, tag="list_changes", frozen=True):
    """Say which files were changed since this was last asked; answered by `Changes`."""

    op: Op


class ReadFile(Frame, tag="read_file", frozen=True):
    """Read a file below the working directory; answered by `FilePiece`s and a `Done`. `Interrupt` ends it early."""

    op: Op
    path: str
    max_bytes: int
    """A larger file is refused before any of it is sent."""


class Ping(Frame, tag="ping", frozen=True):
    """Say that the guest is there; answered by `Done`."""

    op: Op


class Shutdown(Frame, tag="shutdown", frozen=True):
    """End the kernel and the guest; so does end of input."""


Request = Execute | InputReply | Interrupt | KillKernel | WriteFile | ListChanges | ReadFile | Ping | Shutdown

# Replies: guest to host.


class Ready(Frame, tag="ready", frozen=True):
    """The kernel has booted and answers."""

    protocol: int
    language: str
    kernel: str
    """Name and version of the kernel."""


class Stream(Frame, tag="stream", frozen=True):
    """Text that the code printed."""

    op: Op
    name: str
    """`stdout` or `stderr`."""
    text: str


class Display(Frame, tag="display", frozen=True):
    """A MIME bundle that the code displayed."""

    op: Op
    data: dict[str, Any]
    metadata: dict[str, Any]
    display_id: str | None = None
    update: bool = False
    omitted: dict[str, int] = {}
    """Types that were left out for their size or their depth, with their size as JSON in bytes (0: not known)."""


class Result(Frame, tag="result", frozen=True):
    """The value of the last expression, as a MIME bundle."""

    op: Op
    data: dict[str, Any]
    metadata: dict[str, Any]
    execution_count: int | None = None
    omitted: dict[str, int] = {}
    """As in `Display`."""


class Error(Frame, tag="error", frozen=True):
    """An exception that the code did not catch."""

    op: Op
    name: str
    value: str
    traceback: list[str]
    truncated: bool = False
    """Whether something of it was left out."""


class InputRequest(Frame, tag="input_request", frozen=True):
    """A cell asks for a line of input, and waits for `InputReply`."""

    op: Op
    prompt: str
    password: bool = False
    """Whether the answer should not be shown."""


class Done(Frame, tag="done", frozen=True):
    """The operation has ended; only late output, such as of a thread that it left running, can follow for it."""

    op: Op
    status: str
    """`ok`, `error`, `interrupted`, `aborted` (not run) or `refused` (the request was wrong)."""
    message: str = ""
    changes_follow: bool = False
    """Whether `Changes` of the same operation comes, unasked; it comes behind, as a look at many files takes time."""


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was changed."""

    path: str
    """Relative to the working directory."""
    change: str
    """`created`, `modified` or `deleted`."""
    size_bytes: int = 0
    head: bytes = b""
    """How the file begins."""


class Changes(Frame, tag="changes", frozen=True):
    """Which files were changed, at most `MAX_CHANGES` of them."""

    op: Op
    files: list[FileChange]
    left_out: int = 0
    """How many more were found than are named."""
    complete: bool = True
    """Whether the whole workspace was looked through."""


class FilePiece(Frame, tag="file_piece", frozen=True):
    """The next piece of a file that is read."""

    op: Op
    data: bytes


class KernelDied(Frame, tag="kernel_died", frozen=True):
    """The kernel's process has ended; operations under way are lost, and a new kernel starts (see `Ready`)."""

    op: Op
    exit_code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    """Whether something in the container was killed for memory while this kernel lived."""
    stderr_tail: str = ""
    """The last words of the process, such as a fault handler's."""


class Fault(Frame, tag="fault", frozen=True):
    """The guest itself failed and ends."""

    message: str


Reply = (
    Ready | Stream | Display | Result | Error | InputRequest | Done | Changes | FilePiece | KernelDied | Fault
)

_encoder = msgspec.json.Encoder()
_request_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_reply_decoder: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def encode_frame(frame: Frame) -> bytes:
    """Return the frame as one line, newline included.

    Raises:
        FrameError: The frame is longer than `MAX_FRAME_BYTES`.
    """
    line = _encoder.encode(frame) + b"\n"
    if len(line) > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {len(line)} bytes is over the limit of {MAX_FRAME_BYTES}")  # noqa: EM102
    return line


def decode_request(line: bytes) -> Request:
    """Return the request that a line from the host holds.

    Raises:
        FrameError: The line is not a request.
    """
    return _decode(_request_decoder, line)


def decode_reply(line: bytes) -> Reply:
    """Return the reply that a line from a guest holds.

    Raises:
        FrameError: The line is not a reply.
    """
    return _decode(_reply_decoder, line)


def _decode(decoder: msgspec.json.Decoder[T], line: bytes) -> T:
    if len(line) > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {len(line)} bytes is over the limit of {MAX_FRAME_BYTES}")  # noqa: EM102
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise FrameError(f"not a frame: {error}") from error  # noqa: EM102


class LineSplitter:
    """Cuts a byte stream into lines, and refuses a line that grows over the limit.

    Feeding costs time in proportion to the bytes fed, however they are cut.
    """

    def __init__(self, max_line_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their newlines.

        Raises:
            FrameError: A line is longer than the limit.
        """
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._pieces, lines[0]))
            self._pieces, self._held_bytes = [], 0
        if rest:
            self._pieces.append(rest)
            self._held_bytes += len(rest)
        longest = max([self._held_bytes, *map(len, lines)])
        if longest > self._max_line_bytes:
            raise FrameError(f"a line of {longest} bytes is over the limit of {self._max_line_bytes}")  # noqa: EM102
        return lines

    @property
    def held_bytes(self) -> int:
        """How many bytes of an unfinished line are held."""
        return self._held_bytes
