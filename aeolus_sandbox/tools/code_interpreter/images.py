"""How large an image is, by its first bytes: nothing is decoded, so that no image can do harm here."""

import base64
import re
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

_HEAD_BYTES: Final = 64 * 1024 * 3
"""How far a size is looked for; a JPEG has it behind blocks of up to 64 KiB."""
_SVG_HEAD_CHARACTERS: Final = 4096
_MAX_PIXELS: Final = 1_000_000
"""The largest width or height that is believed."""

_PNG_HEAD: Final = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"  # https://www.w3.org/TR/png-3/#11IHDR
_GIF_HEADS: Final = (b"GIF87a", b"GIF89a")
# https://www.w3.org/Graphics/JPEG/itu-t81.pdf , table B.1: the frames, without DHT, JPG and DAC among them.
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BLOCKS: Final = 1000
_JPEG_BARE: Final = frozenset({0x01, *range(0xD0, 0xD9)})
_SVG_TAG: Final = re.compile(r"<svg\b[^>]{0,4096}", re.ASCII)
_SVG_LENGTH: Final = {
    name: re.compile(rf"""\s{name}\s*=\s*["']\s*(\d{{1,9}}(?:\.\d{{0,9}})?)(px|pt)?\s*["']""", re.ASCII)
    for name in ("width", "height")
}
_PIXELS_PER_POINT: Final = 4 / 3  # https://www.w3.org/TR/css-values-4/#absolute-lengths


class ImageSize(NamedTuple):
    """Width and height in pixels."""

    width: int
    height: int


def image_size(mime_type: str, content: str) -> ImageSize | None:
    """Return the size of an image (base64, or the text of an SVG); None where its head does not say."""
    if mime_type == "image/svg+xml":
        return believed(_svg_size(content[:_SVG_HEAD_CHARACTERS]))
    read = _READERS.get(mime_type)
    if read is None:
        return None
    try:
        return believed(read(_head(content)))
    except (ValueError, struct.error, IndexError):  # not base64, or cut off
        return None


def _head(content: str) -> bytes:
    text = "".join(content[: _HEAD_BYTES * 4 // 3].split())
    return base64.b64decode(text[: len(text) // 4 * 4])


def believed(size: tuple[int, int] | None) -> ImageSize | None:
    """Return a size if it is one that an image can have."""
    if size is None or not all(0 < each <= _MAX_PIXELS for each in size):
        return None
    return ImageSize(*size)


def _png_size(data: bytes) -> tuple[int, int] | None:
    return struct.unpack_from(">II", data, 16) if data.startswith(_PNG_HEAD) else None


def _gif_size(data: bytes) -> tuple[int, int] | None:
    return struct.unpack_from("<HH", data, 6) if data[:6] in _GIF_HEADS else None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(b"\xff\xd8"):
        return None
    place = 2
    for _ in range(_JPEG_BLOCKS):
        if data[place] != 0xFF:
            return None
        marker = data[place + 1]
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        if marker == 0xFF:  # a fill byte
            place += 1
        elif marker in _JPEG_BARE:
            place += 2
        else:
            place += 2 + max(2, struct.unpack_from(">H", data, place + 2)[0])
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    # https://developers.google.com/speed/webp/docs/riff_container
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    match data[12:16]:
        case b"VP8X":
            low_width, high_width, low_height, high_height = struct.unpack_from("<HBHB", data, 24)
            return 1 + low_width + (high_width << 16), 1 + low_height + (high_height << 16)
        case b"VP8L":
            bits = struct.unpack_from("<I", data, 21)[0]
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None


def _svg_size(text: str) -> tuple[int, int] | None:
    tag = _SVG_TAG.search(text)
    if tag is None:
        return None
    sizes = []
    for pattern in _SVG_LENGTH.values():
        found = pattern.search(tag[0])
        if found is None:
            return None
        sizes.append(round(float(found[1]) * (_PIXELS_PER_POINT if found[2] == "pt" else 1)))
    return sizes[0], sizes[1]


_READERS: Final[dict[str, Callable[[bytes], tuple[int, int] | None]]] = {
    "image/png": _png_size,
    "image/gif": _gif_size,
    "image/jpeg": _jpeg_size,
    "image/webp": _webp_size,
}
