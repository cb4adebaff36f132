"""Unpacks what a guest sends packed: MIME bundles and tracebacks, with every size bounded before it is unpacked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

import msgspec

from aeolus_sandbox.guest.frames import FrameError
from aeolus_sandbox.tools.code_interpreter.charts import CHART_TYPE
from aeolus_sandbox.tools.code_interpreter.images import ImageSize, believed, image_size
from aeolus_sandbox.tools.code_interpreter.tables import TABLE_TYPE

MAX_ENTRIES: Final = 32
"""How many types of one bundle are looked at."""
_UNPACKED_BYTES: Final = 1024 * 1024
"""Up to this length, a JSON value is unpacked whatever it holds."""
_TRACEBACK_BYTES: Final = 2 * 1024 * 1024
_ASIDE_BYTES: Final = 64 * 1024
"""The longest metadata that is unpacked, and the longest list of what was left out."""
_ROOM_BYTES: Final = 8 * 1024
"""How much of a large bundle may be something else than the values that are known: their names, say."""
_MIME_TYPE: Final = re.compile(r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}", re.ASCII)  # RFC 6838, section 4.2
_METADATA_NAME: Final = re.compile(r"[\w!#$&^.+/-]{1,255}", re.ASCII)

PREFERRED_TYPES: Final = (
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/svg+xml",
    "application/vnd.plotly.v1+json",
    *(f"application/vnd.vegalite.v{version}+json" for version in (6, 5, 4, 3, 2)),
    *(f"application/vnd.vega.v{version}+json" for version in (6, 5, 4, 3)),
    "text/html",
    "text/markdown",
    "text/latex",
    "application/geo+json",
    "application/json",
    "application/pdf",
    "application/javascript",
    "text/javascript",
    "text/plain",
)
"""Types from the richest to the plainest: the first that is there is the one to show. A picture comes first, because
every reader can look at it, and a model too."""
_KNOWN_TYPES: Final = (*PREFERRED_TYPES, TABLE_TYPE, CHART_TYPE)

T = TypeVar("T")

_Packed = dict[str, msgspec.Raw]
_packed_decoder: msgspec.json.Decoder[_Packed] = msgspec.json.Decoder(_Packed)
_sizes_decoder = msgspec.json.Decoder(dict[str, Annotated[int, msgspec.Meta(ge=0, le=2**53)]])
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
            for index, mime in enumerate(_KNOWN_TYPES)
        ],
    )
)


class _SizeHint(msgspec.Struct):
    width: int
    height: int


_hint_decoder = msgspec.json.Decoder(_SizeHint)


@dataclass(frozen=True, slots=True)
class Bundle:
    """One output in all its types."""

    entries: dict[str, str]
    """By type: a text as it is, anything else as JSON."""
    metadata: dict[str, str]
    """By type or name, as JSON."""
    omitted: dict[str, int]
    """Types that the guest left out, with their size in bytes."""
    truncated: bool
    """Whether anything was left out, by the guest or here."""

    @property
    def richest(self) -> str | None:
        """The type to show; None where there is none."""
        return next(
            (mime for mime in PREFERRED_TYPES if mime in self.entries), next(iter(self.entries), None)
        )

    def size(self, mime: str) -> ImageSize | None:
        """Return the size of an image: as its data says, else as the code said."""
        return image_size(mime, self.entries[mime]) or _hinted_size(self.metadata.get(mime, ""))


def unpack(data: msgspec.Raw, metadata: msgspec.Raw, omitted: msgspec.Raw) -> Bundle:
    """Return a bundle unpacked.

    Raises:
        FrameError: It is no bundle.
    """
    packed, complete = _entries(data)
    # Boundary: a type's name goes to whoever shows or stores the output, so nothing but a type's name is let through.
    names = [mime for mime in list(packed)[:MAX_ENTRIES] if _MIME_TYPE.fullmatch(mime)]
    aside = checked(_packed_decoder, bytes(metadata)) if len(bytes(metadata)) <= _ASIDE_BYTES else {}
    sizes = checked(_sizes_decoder, bytes(omitted)) if len(bytes(omitted)) <= _ASIDE_BYTES else {"": 0}
    return Bundle(
        entries={mime: _as_text(mime, packed[mime]) for mime in names},
        metadata={
            name: bytes(aside[name]).decode("utf-8", "replace") for name in _named(aside, _METADATA_NAME)
        },
        omitted={mime: sizes[mime] for mime in _named(sizes, _MIME_TYPE)},
        truncated=not complete or len(names) < len(packed) or bool(sizes),
    )


def lines_of(traceback: msgspec.Raw) -> tuple[list[str], bool]:
    """Return the lines of a traceback, and whether they are all; of one that is too long, a line that says so.

    Raises:
        FrameError: It is not a list of texts.
    """
    line = bytes(traceback)
    if len(line) > _TRACEBACK_BYTES:
        return [f"[the traceback of {len(line)} bytes is left out]"], False
    return checked(_lines_decoder, line), True


def checked(decoder: msgspec.json.Decoder[T], line: bytes) -> T:
    """Return what a decoder makes of JSON from a guest.

    Raises:
        FrameError: It is not what it should be.
    """
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FrameError(f"not a frame: {error}") from error  # noqa: EM102


def _entries(data: msgspec.Raw) -> tuple[_Packed, bool]:
    """Return the entries, and whether they are all that there are."""
    line = bytes(data)
    if len(line) <= _UNPACKED_BYTES:
        return checked(_packed_decoder, line), True
    known = checked(_known_decoder, line)
    values = ((mime, getattr(known, f"entry_{index}")) for index, mime in enumerate(_KNOWN_TYPES))
    packed = {mime: value for mime, value in values if value is not msgspec.UNSET}
    return packed, len(line) - sum(len(bytes(value)) for value in packed.values()) <= _ROOM_BYTES


def _named(entries: Mapping[str, object], pattern: re.Pattern[str]) -> list[str]:
    return [name for name in list(entries)[:MAX_ENTRIES] if pattern.fullmatch(name)]


def _as_text(mime: str, value: msgspec.Raw) -> str:
    line = bytes(value).strip()
    if line.startswith(b'"'):
        return checked(_text_decoder, line)
    if line.startswith(b"[") and not mime.endswith("json") and len(line) <= _UNPACKED_BYTES:
        try:
            return "".join(_lines_decoder.decode(line))  # the notebook format splits long texts into lines
        except msgspec.DecodeError:
            pass  # a list of something else
    return line.decode("utf-8", "replace")


def _hinted_size(metadata: str) -> ImageSize | None:
    try:
        hint = _hint_decoder.decode(metadata)
    except (msgspec.DecodeError, RecursionError):
        return None
    return believed((hint.width, hint.height))
