"""What a kernel writes into its output pipe arrives whole and in order, and what is no message is only named."""

import json
import stat
import threading
import time
from collections.abc import Iterator

import pytest

from aeolus_sandbox.guest.frames import MAX_FRAME_BYTES
from aeolus_sandbox.guest.output_pipe import OutputPipe


@pytest.fixture
def pipe() -> Iterator[OutputPipe]:
    opened = OutputPipe()
    yield opened
    opened.close()


def put(pipe: OutputPipe, data: bytes) -> None:
    """Write in another thread, which waits where the pipe is full."""

    def write() -> None:
        with pipe.path.open("wb") as file:
            file.write(data)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(0.05)


def text(value: str) -> bytes:
    return json.dumps(["stream", {"name": "stdout", "text": value}]).encode() + b"\n"


def test_messages_arrive_in_order_however_they_are_cut(pipe: OutputPipe) -> None:
    line = text("h\u00e9")
    put(pipe, line + line[:9])
    first = list(pipe.take())
    put(pipe, line[9:])
    assert first + list(pipe.take()) == [("stream", {"name": "stdout", "text": "h\u00e9"})] * 2
    assert list(pipe.take()) == []


def test_writer_waits_and_loses_nothing(pipe: OutputPipe) -> None:
    lines = [text(f"{i:05}" * 2000) for i in range(400)]
    put(pipe, b"".join(lines))
    got: list[object] = []
    while len(got) < len(lines):
        got += [content["text"][:5] for _, content in pipe.take()]
    assert got == [f"{i:05}" for i in range(400)]


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"7",
        b"[1,2]",
        b'["stream"]',
        b'["status",{}]',
        b'["note",7]',
        b'{"a":1,"b":2}',
        b"[" * 100_000,
        b"\xff\xfe",
        b"9" * 5000,
    ],
)
def test_what_is_no_message_is_named_and_the_next_is_read(pipe: OutputPipe, line: bytes) -> None:
    put(pipe, line + b"\n" + text("after"))
    got: list[tuple[str, object]] = []
    while len(got) < 2:
        got += pipe.take()
    [(kind, reason), after] = got
    assert (kind, isinstance(reason, str)) == ("", True)
    assert after == ("stream", {"name": "stdout", "text": "after"})


def test_line_without_end_is_given_up(pipe: OutputPipe) -> None:
    threading.Thread(
        target=lambda: pipe.path.write_bytes(b"x" * (MAX_FRAME_BYTES + 1) + b"\n" + text("after")),
        daemon=True,
    ).start()
    got: list[tuple[str, object]] = []
    deadline = time.monotonic() + 20
    while ("stream", {"name": "stdout", "text": "after"}) not in got:
        assert time.monotonic() < deadline
        got += pipe.take()
    assert got[0] == ("", "output that is no message")


def test_pipe_is_private_and_gone_after_closing(pipe: OutputPipe) -> None:
    assert stat.S_IMODE(pipe.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(pipe.path.parent.stat().st_mode) == 0o700
    pipe.close()
    pipe.close()
    assert not pipe.path.parent.exists()
    assert list(pipe.take()) == []
