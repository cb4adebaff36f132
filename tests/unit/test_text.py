"""Text is cut only between characters, and nothing that was not UTF-8 is invented or lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.streaming.text import Utf8Boundary

fragments = st.sampled_from(
    [b"a", b"caf\xc3", b"\xa9", b" \xf0\x9f", b"\x98\x80", b"\xfe", b"\xe2\x82", b"\xed\xa0", b"\xf4\x90"]
)
streams = st.lists(st.binary(max_size=6) | fragments | st.text(max_size=4).map(str.encode), max_size=20)


def _pieces(parts: list[bytes]) -> list[bytes]:
    boundary = Utf8Boundary()
    return [piece for piece in [*(boundary.feed(part) for part in parts), boundary.flush()] if piece]


@given(parts=streams)
def test_pieces_decoded_alone_are_the_whole_decoded(parts: list[bytes]) -> None:
    pieces = _pieces(parts)
    assert b"".join(pieces) == b"".join(parts)
    together = b"".join(parts).decode("utf-8", "replace")
    assert "".join(piece.decode("utf-8", "replace") for piece in pieces) == together


@given(text=st.text(), data=st.data())
def test_a_split_never_makes_a_replacement_character(text: str, data: st.DataObject) -> None:
    encoded = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(encoded)))))
    parts = [encoded[start:end] for start, end in zip([0, *cuts], [*cuts, len(encoded)], strict=True)]
    assert "".join(piece.decode("utf-8", "strict") for piece in _pieces(parts)) == text


def test_the_reported_stream_comes_out_right() -> None:
    parts = [b"caf\xc3", b"\xa9 \xf0\x9f", b"\x98\x80\n", b"x\xfey\n"]
    pieces = [piece.decode("utf-8", "replace") for piece in _pieces(parts)]
    assert "".join(pieces) == "café 😀\nx\ufffdy\n"
    assert pieces == ["caf", "é ", "😀\n", "x\ufffdy\n"]


@pytest.mark.parametrize("lead", [b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98"])
def test_a_character_that_never_comes_is_flushed_as_one_replacement(lead: bytes) -> None:
    pieces = _pieces([b"a" + lead])
    assert pieces == [b"a", lead]
    assert pieces[1].decode("utf-8", "replace") == "\ufffd"


@pytest.mark.parametrize(
    "data", [b"\xfe", b"\xff", b"\xc0", b"\xc1", b"\xf5", b"\xed\xa0", b"\xe0\x80", b"\x80", b"\xf0\x8f"]
)
def test_what_cannot_become_a_character_is_not_held_back(data: bytes) -> None:
    assert Utf8Boundary().feed(data) == data
