"""The size of an image is read from its head, and no head can do harm."""

import base64
import struct
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.tools.code_interpreter.images import ImageSize, image_size

PNG: Final = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 640, 480, 8, 6, 0, 0, 0)
GIF: Final = b"GIF89a" + struct.pack("<HH", 640, 480)
APP0: Final = b"\xff\xe0\x00\x10JFIF\0" + bytes(9)
FRAME: Final = b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", 480, 640)
JPEG: Final = b"\xff\xd8" + APP0 + b"\xff\xff\xe1\xff\xff" + bytes(0xFFFD) + b"\xff\xc4\x00\x04ab" + FRAME
VP8X: Final = b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x7f\x02\x00\xdf\x01\x00"
VP8L: Final = b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f" + struct.pack("<I", 639 | 479 << 14)
VP8: Final = b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 640, 480)
HEADS: Final = {
    "png": ("image/png", PNG),
    "gif": ("image/gif", GIF),
    "jpeg": ("image/jpeg", JPEG),
    "webp, extended": ("image/webp", VP8X),
    "webp, lossless": ("image/webp", VP8L),
    "webp, lossy": ("image/webp", VP8),
}
TYPES: Final = ("image/png", "image/gif", "image/jpeg", "image/webp", "image/svg+xml", "image/tiff")


def packed(data: bytes) -> str:
    return base64.encodebytes(data).decode()  # with newlines, as IPython has it


@pytest.mark.parametrize(("mime", "head"), HEADS.values(), ids=HEADS)
def test_head_tells_the_size(mime: str, head: bytes) -> None:
    assert image_size(mime, packed(head + bytes(1000))) == (640, 480)


@pytest.mark.parametrize(("mime", "head"), HEADS.values(), ids=HEADS)
def test_head_that_is_cut_off_tells_nothing(mime: str, head: bytes) -> None:
    for end in range(0, len(head), max(1, len(head) // 50)):
        assert image_size(mime, packed(head[:end])) in {None, ImageSize(640, 480)}
    assert image_size(mime, packed(head[:12])) is None or mime == "image/gif"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('<svg width="640" height="480">', (640, 480)),
        (
            "<?xml version='1.0'?>\n<svg xmlns='x' height='480px'\n width='640px' viewBox='0 0 1 1'>",
            (640, 480),
        ),
        ('<svg width="480pt" height="360.0pt"/>', (640, 480)),
        ('<svg width="100%" height="100%">', None),
        ('<svg stroke-width="2" height="480">', None),
        ('<svg width="640">', None),
        ('<p width="640" height="480">', None),
        ('<svg width="0" height="480">', None),
        ('<svg width="999999999" height="480">', None),
        ("", None),
    ],
)
def test_tag_of_an_svg_tells_the_size(text: str, size: tuple[int, int] | None) -> None:
    assert image_size("image/svg+xml", text) == size


@pytest.mark.parametrize(("width", "height"), [(0, 480), (640, 0), (2**31, 480), (2**32 - 1, 2**32 - 1)])
def test_sizes_that_no_image_has_are_not_believed(width: int, height: int) -> None:
    head = PNG[:16] + struct.pack(">II", width, height)
    assert image_size("image/png", packed(head + bytes(8))) is None


@given(data=st.binary(max_size=200), head=st.sampled_from(sorted(HEADS)), mime=st.sampled_from(TYPES))
def test_no_bytes_do_harm(data: bytes, head: str, mime: str) -> None:
    start = HEADS[head][1][:30]
    for content in (
        packed(start + data),
        packed(data),
        data.decode("latin-1"),
        "<svg " + data.decode("latin-1"),
    ):
        size = image_size(mime, content)
        assert size is None or all(0 < each <= 1_000_000 for each in size)


@pytest.mark.parametrize("filler", [b"\xff", b"\xff\xd0", b"\xff\xe0\x00\x00", b"\xff\xe0\x00\x02"])
def test_endless_jpeg_is_given_up(filler: bytes) -> None:
    assert image_size("image/jpeg", packed(b"\xff\xd8" + filler * 1_000_000)) is None
