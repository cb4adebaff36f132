"""What the host takes from a guest: the reply frames, with every size bounded and nothing unpacked that is not shown.

Code in a sandbox can write frames of its own (it runs as the same user as the guest), so the worst line must cost the
host no more than its own length: JSON turned into objects grows up to 25 times.
"""

import re
from typing import Annotated, Final, TypeVar

import msgspec

from aeolus_sandbox.guest import frames
from aeolus_sandbox.guest.frames import Frame, FrameError, Op

MAX_ENTRIES: Final = 32
"""How many types of one bundle are looked at."""
_UNPACKED_BYTES: Final = 1024 * 1024
"""Up to this length, a JSON value is unpacked whatever it holds."""
_TRACEBACK_BYTES: Final = 2 * 1024 * 1024
_MIME_TYPE: Final = re.compile(r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}", re.ASCII)  # RFC 6838, section 4.2

PREFERRED_TYPES: Final = (
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/svg+xml",
    "application/vnd.plotly.v1+json",
    "application/vnd.vegalite.v5+json",
    "text/html",
    "text/markdown",
    "text/latex",
    "application/json",
    "application/javascript",
    "application/pdf",
    "text/plain",
)
"""Types from the richest to the plainest: the first that is there is the one to show."""

T = TypeVar("T")

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
    """A MIME bundle that the code displayed; `entries_of` unpacks it."""

    op: Op
    data: msgspec.Raw
    display_id: ShortText | None = None
    update: bool = False


class Result(Frame, tag="result", frozen=True):
    """The value of the last expression, as a MIME bundle."""

    op: Op
    data: msgspec.Raw


class Error(Frame, tag="error", frozen=True):
    """An exception that the code did not catch; `lines_of` unpacks its traceback."""

    op: Op
    name: ShortText
    value: ShortText
    traceback: msgspec.Raw


class Done(Frame, tag="done", frozen=True):
    """The operation has ended."""

    op: Op
    status: ShortText
    message: ShortText = ""


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


Reply = Ready | Stream | Display | Result | Error | Done | KernelDied | Fault

_decoder: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)
_Bundle = dict[str, msgspec.Raw]
_bundle_decoder: msgspec.json.Decoder[_Bundle] = msgspec.json.Decoder(_Bundle)
_lines_decoder: msgspec.json.Decoder[list[str]] = msgspec.json.Decoder(list[str])
_text_decoder: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)
# A structure takes out the entries with these names; the others are passed over without becoming objects.
_known_decoder = msgspec.json.Decoder(
    msgspec.defstruct(
        "KnownTypes",
        [
            (
                f"entry_{index}",
                msgspec.Raw | msgspec.UnsetType,
                msgspec.field(default=msgspec.UNSET, name=mime),
            )
            for index, mime in enumerate(PREFERRED_TYPES)
        ],
    )
)


def decode_reply(line: bytes) -> Reply:
    """Return the reply that a line from a guest holds.

    Raises:
        FrameError: The line is not a reply.
    """
    return _checked(_decoder, line)


def entries_of(data: msgspec.Raw) -> dict[str, str]:
    """Return the entries of a MIME bundle, each as text: a string as it is, anything else as JSON.

    Raises:
        FrameError: It is not a bundle.
    """
    # Boundary: a type's name goes to whoever shows or stores the output, so nothing but a type's name is let through.
    return {
        mime: _as_text(value)
        for mime, value in list(_raw_entries(data).items())[:MAX_ENTRIES]
        if _MIME_TYPE.fullmatch(mime)
    }


def lines_of(traceback: msgspec.Raw) -> list[str]:
    """Return the lines of a traceback, or a line that says that it is too long.

    Raises:
        FrameError: It is not a list of texts.
    """
    line = bytes(traceback)
    if len(line) > _TRACEBACK_BYTES:
        return [f"[the traceback of {len(line)} bytes is left out]"]
    return _checked(_lines_decoder, line)


def _raw_entries(data: msgspec.Raw) -> _Bundle:
    line = bytes(data)
    if len(line) <= _UNPACKED_BYTES:
        return _checked(_bundle_decoder, line)
    known = _checked(_known_decoder, line)
    values = ((mime, getattr(known, f"entry_{index}")) for index, mime in enumerate(PREFERRED_TYPES))
    return {mime: value for mime, value in values if value is not msgspec.UNSET}


def _as_text(value: msgspec.Raw) -> str:
    line = bytes(value).strip()
    if line.startswith(b'"'):
        return _checked(_text_decoder, line)
    if line.startswith(b"[") and len(line) <= _UNPACKED_BYTES:
        try:
            return "".join(_lines_decoder.decode(line))  # the notebook format splits long texts into lines
        except msgspec.DecodeError:
            pass  # a list of something else
    return line.decode("utf-8", "replace")


def _checked(decoder: msgspec.json.Decoder[T], line: bytes) -> T:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FrameError(f"not a frame: {error}") from error  # noqa: EM102
