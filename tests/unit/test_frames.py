"""Frames and lines: any cut gives the same lines, limits hold, and garbage only ever raises FrameError."""

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest import frames
from aeolus_sandbox.guest.frames import (
    MAX_FRAME_BYTES,
    Display,
    Done,
    Error,
    Execute,
    FrameError,
    InputReply,
    InputRequest,
    Interrupt,
    KernelDied,
    LineSplitter,
    Reply,
    Request,
    Shutdown,
    Stream,
    WriteFile,
    decode_reply,
    decode_request,
    encode_frame,
)

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
ops = st.integers(min_value=0, max_value=2**53)
requests = st.one_of(
    st.builds(Execute, op=ops, code=texts, allow_stdin=st.booleans(), chart_data=st.booleans()),
    st.builds(InputReply, op=ops, text=texts | st.none()),
    st.builds(Interrupt, op=ops),
    st.builds(WriteFile, op=ops, path=texts, data=st.binary(), first=st.booleans(), last=st.booleans()),
    st.builds(Shutdown),
)
replies = st.one_of(
    st.builds(Stream, op=ops, name=st.sampled_from(["stdout", "stderr"]), text=texts),
    st.builds(Display, op=ops, data=st.dictionaries(texts, texts), metadata=st.just({})),
    st.builds(Error, op=ops, name=texts, value=texts, traceback=st.lists(texts)),
    st.builds(InputRequest, op=ops, prompt=texts, password=st.booleans()),
    st.builds(Done, op=ops, status=texts, message=texts),
    st.builds(KernelDied, op=ops, exit_code=st.none(), signal=st.integers(1, 64), stderr_tail=texts),
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


@given(requests)
def test_a_request_comes_back_as_it_went(request: Request) -> None:
    line = encode_frame(request)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_request(line[:-1]) == request


@given(replies)
def test_a_reply_comes_back_as_it_went(reply: Reply) -> None:
    assert decode_reply(encode_frame(reply)) == reply


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b""))), st.lists(st.integers(0)))
def test_any_cut_gives_the_same_lines(lines: list[bytes], places: list[int]) -> None:
    splitter = LineSplitter()
    data = b"".join(line + b"\n" for line in lines)
    got = [line for piece in cut(data + b"rest", places) for line in splitter.feed(piece)]
    assert got == lines
    assert splitter.held_bytes == len(b"rest")


@given(st.integers(1, 50), st.integers(0, 100), st.lists(st.integers(0)))
def test_line_limit_holds_for_any_cut(limit: int, length: int, places: list[int]) -> None:
    splitter = LineSplitter(max_line_bytes=limit)

    def feed() -> list[bytes]:
        return [line for piece in cut(b"x" * length + b"\n", places) for line in splitter.feed(piece)]

    if length <= limit:
        assert feed() == [b"x" * length]
    else:
        with pytest.raises(FrameError):
            feed()


def test_an_endless_line_is_refused_before_it_is_held() -> None:
    splitter = LineSplitter(max_line_bytes=1000)
    for _ in range(10):
        assert splitter.feed(b"x" * 100) == []
    with pytest.raises(FrameError):
        splitter.feed(b"x")


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_garbage_only_raises_frame_error(line: bytes) -> None:
    for decode in (decode_request, decode_reply):
        with pytest.raises(FrameError):
            decode(line)


@given(requests | replies, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=5))
def test_damaged_frames_decode_or_raise_frame_error(
    frame: frames.Frame, damage: list[tuple[int, int]]
) -> None:
    line = bytearray(encode_frame(frame))
    for place, value in damage:
        line[place % len(line)] = value
    for decode in (decode_request, decode_reply):
        with suppress(FrameError):
            assert isinstance(decode(bytes(line)), frames.Frame)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b'{"frame":"reboot"}',
        b'{"op":1,"code":"1"}',
        b'{"frame":"execute","op":-1,"code":"1"}',
        b'{"frame":"execute","op":9007199254740993,"code":"1"}',
        b'{"frame":"execute","op":1.5,"code":"1"}',
        b'{"frame":"execute","op":1,"code":1}',
        b'{"frame":"execute","op":1,"code":"\\ud800"}',
        b'{"frame":"done","op":1,"status":"ok"}',
        b'{"frame":"write_file","op":1,"path":"a","data":"***","first":true,"last":true}',
        b'{"frame":"display","op":1,"data":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ],
)
def test_wrong_requests_are_refused(line: bytes) -> None:
    with pytest.raises(FrameError):
        decode_request(line)


def test_frames_over_the_limit_are_refused_both_ways() -> None:
    text = "x" * MAX_FRAME_BYTES
    with pytest.raises(FrameError):
        encode_frame(Stream(op=1, name="stdout", text=text))
    with pytest.raises(FrameError):
        decode_reply(b'{"frame":"stream","op":1,"name":"stdout","text":"' + text.encode() + b'"}')
