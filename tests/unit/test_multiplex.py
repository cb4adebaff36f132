"""Docker's framing is taken apart the same way, however the connection cuts it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.engine.multiplex import FrameDecoder
from aeolus_sandbox.errors import EngineError
from aeolus_sandbox.pieces import Piece, StreamName

NUMBERS: dict[StreamName, int] = {"stdout": 1, "stderr": 2}
frames = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=20)), max_size=12)


def _frame(number: int, payload: bytes) -> bytes:
    return bytes([number, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Join neighbours of the same stream, because a cut may fall inside a payload."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and joined[-1].stream == piece.stream:
            joined[-1] = Piece(piece.stream, joined[-1].data + piece.data)
        elif piece.data:
            joined.append(piece)
    return joined


@given(frames=frames, data=st.data())
def test_every_cut_gives_the_same_pieces_in_order(
    frames: list[tuple[StreamName, bytes]], data: st.DataObject
) -> None:
    raw = b"".join(_frame(NUMBERS[stream], payload) for stream, payload in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=30)))
    decoder, pieces = FrameDecoder(), list[Piece]()
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        pieces += decoder.feed(raw[start:end])
    assert _joined(pieces) == _joined([Piece(stream, payload) for stream, payload in frames])
    assert not decoder.is_inside_frame


def test_the_reported_frame_is_whole_for_every_single_cut() -> None:
    raw = b"\x01\0\0\0\0\0\0\x06quick\n"
    for cut in range(len(raw) + 1):
        decoder = FrameDecoder()
        assert _joined(decoder.feed(raw[:cut]) + decoder.feed(raw[cut:])) == [Piece("stdout", b"quick\n")]


def test_an_empty_frame_is_nothing_and_a_big_one_is_whole() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(_frame(2, b"")) == []
    big = b"x" * 300_000
    assert decoder.feed(_frame(2, big) + _frame(1, b"y")) == [Piece("stderr", big), Piece("stdout", b"y")]


@pytest.mark.parametrize("number", [0, 3, 7, 255])
def test_an_unknown_stream_is_an_error_and_no_guess(number: int) -> None:
    with pytest.raises(EngineError, match=f"stream {number}"):
        FrameDecoder().feed(_frame(number, b"x"))


@given(cut=st.integers(1, 13))
def test_a_stream_that_ends_inside_a_frame_is_known_to_be_cut(cut: int) -> None:
    raw = _frame(1, b"quick\n")
    decoder = FrameDecoder()
    assert b"".join(piece.data for piece in decoder.feed(raw[:cut])) == raw[8:cut]
    assert decoder.is_inside_frame


def test_a_frame_that_claims_a_huge_length_costs_no_memory() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"\x01\0\0\0\xff\xff\xff\xffabc") == [Piece("stdout", b"abc")]
    assert decoder.is_inside_frame
