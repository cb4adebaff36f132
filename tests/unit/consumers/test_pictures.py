"""Images of tools: found in any JSON, and drawn by nothing but themselves."""

import base64
import re
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.consumers.pictures import MAX_PICTURES, Picture, drawn, pictures_in
from tests.unit.consumers.runs_of_events import any_json

HEAD = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


def png(width: int = 2, height: int = 3, rest: bytes = b"") -> bytes:
    return HEAD + struct.pack(">II", width, height) + rest


def chunk(data: bytes, mime_type: str = "image/png") -> dict[str, Any]:
    return {"mime_type": mime_type, "content": base64.b64encode(data).decode()}


def test_images_are_found_at_any_place() -> None:
    svg: Any = {"mime_type": "image/svg+xml", "content": '<svg width="4" height="5"></svg>'}
    found = list(pictures_in({"a": [chunk(png())], "b": {"c": svg}, "d": "text"}))
    assert [(each.mime_type, each.size) for each in found] == [
        ("image/png", (2, 3)),
        ("image/svg+xml", (4, 5)),
    ]
    assert found[0].data == png()


@given(any_json, st.text(max_size=20))
def test_what_is_no_image_gives_none(value: Any, content: str) -> None:
    assert list(pictures_in(value)) == []
    broken: Any = {"mime_type": "image/png", "content": content}
    assert all(picture.data for picture in pictures_in(broken))


def test_search_is_bounded() -> None:
    assert len(list(pictures_in([chunk(png())] * 100))) == MAX_PICTURES
    deep: Any = chunk(png())
    for _ in range(10):
        deep = [deep]
    assert list(pictures_in(deep)) == []


@given(st.binary(max_size=10_000))
def test_kitty_gets_the_bytes_in_pieces_and_no_other_order(rest: bytes) -> None:
    text = drawn(Picture("image/png", png(rest=rest), (2, 3)), "kitty")
    assert text is not None
    pieces = re.findall(r"\x1b_G([^;\x1b]*);([A-Za-z0-9+/=]{0,4096})\x1b\\", text)
    assert "".join(f"\x1b_G{keys};{data}\x1b\\" for keys, data in pieces) == text
    assert base64.b64decode("".join(data for _, data in pieces)) == png(rest=rest)
    assert [keys.endswith("m=1") for keys, _ in pieces] == [True] * (len(pieces) - 1) + [False]


@given(st.binary(max_size=100))
def test_iterm_gets_the_bytes_and_no_other_order(rest: bytes) -> None:
    text = drawn(Picture("image/jpeg", rest, (2, 3)), "iterm2")
    assert text is not None
    match = re.fullmatch(r"\x1b\]1337;File=[a-zA-Z0-9=;]*:([A-Za-z0-9+/=]*)\x07", text)
    assert match is not None
    assert base64.b64decode(match[1]) == rest


@pytest.mark.parametrize(
    "picture",
    [
        Picture("image/png", b"no image", None),
        Picture("image/svg+xml", b"<svg/>", (1, 1)),
        Picture("image/png", png(100_000, 100_000), (100_000, 100_000)),
    ],
)
def test_what_a_terminal_should_not_decode_is_not_drawn(picture: Picture) -> None:
    assert drawn(picture, "kitty") is None
    assert drawn(picture, "iterm2") is None
