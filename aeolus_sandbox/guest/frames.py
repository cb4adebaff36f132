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
"""How much of a file one `WriteFile` frame carries."""

T = TypeVar("T")

Op = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Number of an operation, chosen by the host."""


class FrameError(ValueError):
    """A line is not a frame: broken JSON, an unknown kind, a wrong type, or too long."""


class Frame(msgspec.Struct, frozen=True, tag_field="frame", kw_only=True):
    """Base of all frames."""


# Requests: host to guest.


class Execute(Frame, tag="execute", frozen=True):
    """Run a piece of code in the kernel; answered by output frames and one `Done`."""

    op: Op
    code: str


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


class Shutdown(Frame, tag="shutdown", frozen=True):
    """End the kernel and the guest; so does end of input."""


Request = Execute | Interrupt | KillKernel | WriteFile | Shutdown

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


class Result(Frame, tag="result", frozen=True):
    """The value of the last expression, as a MIME bundle."""

    op: Op
    data: dict[str, Any]
    metadata: dict[str, Any]
    execution_count: int | None = None


class Error(Frame, tag="error", frozen=True):
    """An exception that the code did not catch."""

    op: Op
    name: str
    value: str
    traceback: list[str]


class Done(Frame, tag="done", frozen=True):
    """The operation has ended; only late output, such as of a thread that it left running, can follow for it."""

    op: Op
    status: str
    """`ok`, `error`, `interrupted`, `aborted` (not run) or `refused` (the request was wrong)."""
    message: str = ""


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


Reply = Ready | Stream | Display | Result | Error | Done | KernelDied | Fault

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
