"""What a kernel writes to its console comes whole, typed, and in order with its messages."""

import fcntl
import os
from collections.abc import AsyncIterator, Iterator

import pytest
import zmq
import zmq.asyncio

from aeolus_sandbox.guest.console import Console
from aeolus_sandbox.guest.kernel_client import Message

KEY = "0123456789abcdef"


def mark(kind: str) -> bytes:
    return f"\x1e{KEY}{kind};".encode()


def numbered(number: int) -> Message:
    return Message("display_data", "p", {"mark": number})


class Pipes:
    """A console, and the ends that the kernel writes to."""

    def __init__(self) -> None:
        stdout_fd, self.stdout = os.pipe()
        stderr_fd, self.stderr = os.pipe()
        for fd in (stdout_fd, stderr_fd):
            os.set_blocking(fd, False)
        self.words = b""
        self.console = Console(stdout_fd, stderr_fd, KEY, self._note)
        self.console.begin("p")

    def _note(self, data: bytes) -> None:
        self.words += data

    def write(self, data: bytes) -> None:
        assert os.write(self.stdout, data) == len(data)

    def take(self, *messages: Message) -> list[tuple[str, str] | int]:
        """Return what comes: (stream, text) for text, the number for a message."""
        return [
            (message.content["name"], message.content["text"])
            if message.kind == "stream"
            else message.content["mark"]
            for message in self.console.take(messages)
        ]

    def close(self) -> None:
        self.console.close()
        for fd in (self.stdout, self.stderr):
            os.close(fd)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    opened = Pipes()
    yield opened
    opened.close()


@pytest.fixture
async def silence() -> AsyncIterator[zmq.asyncio.Socket]:
    """Give a channel on which no message comes."""
    with zmq.asyncio.Context() as context, context.socket(zmq.PULL) as socket:
        socket.bind("inproc://silence")
        yield socket


def test_message_stands_where_its_mark_stands(pipes: Pipes) -> None:
    pipes.write(b"a" + mark("M1") + b"b" + mark("M2") + b"c")
    assert pipes.take(numbered(1), numbered(2)) == [("stdout", "a"), 1, ("stdout", "b"), 2, ("stdout", "c")]


def test_text_waits_for_the_message_before_it(pipes: Pipes) -> None:
    pipes.write(b"a" + mark("M1") + b"b")
    assert pipes.take() == [("stdout", "a")]
    assert pipes.take(numbered(1)) == [1, ("stdout", "b")]


def test_message_without_a_mark_comes_at_once(pipes: Pipes) -> None:
    assert pipes.take(numbered(0)) == [0]
    assert pipes.take(numbered(7)) == [7]  # its mark was lost


def test_lost_message_holds_nothing_up_when_a_later_one_comes(pipes: Pipes) -> None:
    pipes.write(b"a" + mark("M1") + b"b" + mark("M2") + b"c")
    assert pipes.take() == [("stdout", "a")]
    assert pipes.take(numbered(2)) == [("stdout", "b"), 2, ("stdout", "c")]


async def test_lost_message_of_a_dead_kernel_holds_nothing_up(
    pipes: Pipes, silence: zmq.asyncio.Socket
) -> None:
    pipes.write(b"a" + mark("M1") + b"b")
    assert pipes.take() == [("stdout", "a")]
    pipes.console.end()
    assert await pipes.console.wait(silence, 10)
    assert pipes.take() == [("stdout", "b")]


async def test_waiting_sees_text_on_either_descriptor(pipes: Pipes, silence: zmq.asyncio.Socket) -> None:
    assert not await pipes.console.wait(silence, 10)
    for fd, name in ((pipes.stdout, "stdout"), (pipes.stderr, "stderr")):
        os.write(fd, b"x")
        assert await pipes.console.wait(silence, 60_000)
        assert pipes.take() == [(name, "x")]


def test_marked_text_is_of_the_error_output(pipes: Pipes) -> None:
    pipes.write(b"a" + mark("E") + b"e" + mark("O") + b"b")
    assert pipes.take() == [("stdout", "a"), ("stderr", "e"), ("stdout", "b")]


def test_words_on_stderr_are_shown_and_noted(pipes: Pipes) -> None:
    os.write(pipes.stderr, b"last words")
    assert pipes.take() == [("stderr", "last words")]
    assert pipes.words == b"last words"


@pytest.mark.parametrize("room", range(40))
def test_mark_that_two_reads_cut_is_a_mark(pipes: Pipes, room: int) -> None:
    fcntl.fcntl(pipes.stdout, fcntl.F_SETPIPE_SZ, 256 * 1024)
    text = b"x" * (64 * 1024 - room)
    pipes.write(text + mark("E") + b"e" + mark("O"))
    shown = pipes.take()
    assert (
        "".join(item[1] for item in shown if isinstance(item, tuple) and item[0] == "stdout") == text.decode()
    )
    assert "".join(item[1] for item in shown if isinstance(item, tuple) and item[0] == "stderr") == "e"


def test_text_that_only_looks_like_a_mark_is_text(pipes: Pipes) -> None:
    pipes.write(b"\x1e\x1eE;\x1e0123;" + mark("X") + b"\x1e")
    assert "".join(item[1] for item in pipes.take() if isinstance(item, tuple)) == (
        f"\x1e\x1eE;\x1e0123;{mark('X').decode()}\x1e"
    )


def test_character_that_two_writes_cut_arrives_whole(pipes: Pipes) -> None:
    pipes.write("é".encode()[:1])
    assert pipes.take() == []
    pipes.write("é".encode()[1:])
    assert pipes.take() == [("stdout", "é")]


def test_bytes_that_are_no_text_are_shown_before_the_next_message(pipes: Pipes) -> None:
    pipes.write(b"caf\xe9" + mark("M1"))
    assert pipes.take(numbered(1)) == [("stdout", "caf"), ("stdout", "\ufffd"), 1]


def test_many_marks_are_all_seen(pipes: Pipes) -> None:
    fcntl.fcntl(pipes.stdout, fcntl.F_SETPIPE_SZ, 1024 * 1024)
    pipes.write((mark("E") + b"e" + mark("O")) * 10_000)
    assert pipes.take() == [("stderr", "e")] * 10_000
