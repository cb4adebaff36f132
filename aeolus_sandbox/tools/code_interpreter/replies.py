"""What the host takes from a guest: the reply frames, with every size bounded and nothing unpacked that is not shown.

Code in a sandbox can write frames of its own (it runs as the same user as the guest), so the worst line must cost the
host no more than its own length: JSON turned into objects grows up to 25 times.
"""

from typing import Annotated, Final, Literal

import msgspec

from aeolus_sandbox.guest import frames
from aeolus_sandbox.guest.frames import Frame, Op
from aeolus_sandbox.tools.code_interpreter.bundles import checked

_EMPTY: Final = msgspec.Raw(b"{}")
ShortText = Annotated[str, msgspec.Meta(max_length=64 * 1024)]


class Ready(Frame, tag="ready", frozen=True):
    """The kernel has booted and answers."""

    protocol: int


class Stream(Frame, tag="stream", frozen=True):
    """Text that the code printed."""

    op: Op
    name: ShortText
    text: Annotated[str, msgspec.Meta(max_length=frames.MAX_TEXT_CHARACTERS)]


class Display(Frame, tag="display", frozen=True):
    """A MIME bundle that the code displayed; `bundles` unpacks it."""

    op: Op
    data: msgspec.Raw
    metadata: msgspec.Raw = _EMPTY
    display_id: ShortText | None = None
    update: bool = False
    omitted: msgspec.Raw = _EMPTY


class Result(Frame, tag="result", frozen=True):
    """The value of the last expression, as a MIME bundle."""

    op: Op
    data: msgspec.Raw
    metadata: msgspec.Raw = _EMPTY
    omitted: msgspec.Raw = _EMPTY


class Error(Frame, tag="error", frozen=True):
    """An exception that the code did not catch; `bundles.lines_of` unpacks its traceback."""

    op: Op
    name: ShortText
    value: ShortText
    traceback: msgspec.Raw
    truncated: bool = False


class InputRequest(Frame, tag="input_request", frozen=True):
    """The code waits for a line of input."""

    op: Op
    prompt: ShortText
    password: bool = False


class Done(Frame, tag="done", frozen=True):
    """The operation has ended."""

    op: Op
    status: ShortText
    message: ShortText = ""
    changes_follow: bool = False


class FileChange(msgspec.Struct, frozen=True):
    """A file that was changed."""

    path: ShortText
    change: Literal["created", "modified", "deleted"]
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    head: Annotated[bytes, msgspec.Meta(max_length=frames.HEAD_BYTES)] = b""


class Changes(Frame, tag="changes", frozen=True):
    """Which files were changed; `changes_of` unpacks them."""

    op: Op
    files: msgspec.Raw
    left_out: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    complete: bool = True


class FilePiece(Frame, tag="file_piece", frozen=True):
    """The next piece of a file that is read."""

    op: Op
    data: Annotated[bytes, msgspec.Meta(max_length=frames.FILE_PIECE_BYTES)]


class KernelDied(Frame, tag="kernel_died", frozen=True):
    """The kernel's process has ended."""

    op: Op
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    signal: Annotated[int, msgspec.Meta(ge=1, le=127)] | None = None
    out_of_memory: bool = False
    stderr_tail: ShortText = ""


class Fault(Frame, tag="fault", frozen=True):
    """The guest itself failed and ends."""

    message: ShortText


Reply = (
    Ready | Stream | Display | Result | Error | InputRequest | Done | Changes | FilePiece | KernelDied | Fault
)

_decoder: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)
_CHANGES_BYTES: Final = 2 * 1024 * 1024
_changes_decoder = msgspec.json.Decoder(
    Annotated[list[FileChange], msgspec.Meta(max_length=frames.MAX_CHANGES)]
)


def decode_reply(line: bytes) -> Reply:
    """Return the reply that a line from a guest holds.

    Raises:
        FrameError: The line is not a reply.
    """
    return checked(_decoder, line)


def changes_of(files: msgspec.Raw) -> list[FileChange]:
    """Return the files that were changed.

    Raises:
        FrameError: It is not a list of changes, or longer than a guest of ours makes it.
    """
    line = bytes(files)
    if len(line) > _CHANGES_BYTES:
        raise frames.FrameError(f"a list of changed files of {len(line)} bytes")  # noqa: EM102
    return checked(_changes_decoder, line)
