r"""What a kernel's process writes to its own stdout and stderr, in one order with its messages.

Most kernels send what code prints as messages, and lose what programs and C code print. A kernel with a console
prints straight to its descriptors: text comes as it is written, whatever holds the kernel up, and waits in the pipe
while nobody reads. The kernel puts marks into its stdout, `\x1e` KEY KIND NUMBER `;`:

- `E`: what follows is text of the error output; `O`: it is no more.
- `M`: the message whose content has this number as `mark` belongs here.

Code in the container can write marks too, which gets its own output into disorder and nothing else.
"""

import codecs
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import zmq
import zmq.asyncio

from aeolus_sandbox.guest.kernel_client import Message

_READ_BYTES: Final = 64 * 1024
_TURN_BYTES: Final = 1024 * 1024
_MARK_BYTES: Final = 48
"""No mark is longer."""
_MESSAGE_LIMIT_MS: Final = 1000
"""How long text waits for the message before it, which was sent just before the text was written."""


class Console:
    """The console of one kernel; `begin` says which cell text belongs to from now on."""

    def __init__(self, stdout_fd: int, stderr_fd: int, key: str, on_stderr: Callable[[bytes], None]) -> None:
        self._fds = {"stdout": stdout_fd, "stderr": stderr_fd}
        self._on_stderr = on_stderr
        self._mark = re.compile(rb"\x1e%b([EOM])(\d{0,12});" % key.encode())
        self._unread = b""
        self._stderr = b""
        self._held: deque[Message] = deque()
        self._awaited: int | None = None
        self._awaited_since = 0.0
        self._ended = False
        self._name = "stdout"
        self._parent_id = ""
        self._decoders = {name: _new_decoder() for name in ("stdout", "stderr", "marked")}

    async def wait(self, messages: zmq.asyncio.Socket, timeout_ms: int) -> bool:
        """Wait until there may be something to take; cancelling loses nothing."""
        if self._has_more:
            return True
        poller = zmq.asyncio.Poller()
        poller.register(messages, zmq.POLLIN)
        for fd in self._readable():
            poller.register(fd, zmq.POLLIN)
        limit_ms = min(timeout_ms, _MESSAGE_LIMIT_MS) if self._waits else timeout_ms
        if await poller.poll(limit_ms):
            return True
        if self._ended:
            self._awaited = None
        return self._has_more

    def begin(self, message_id: str) -> None:
        """Note which message the code that runs came with; what is written from now on is taken for its output.

        So what a program prints that a cell has left running belongs to the cell that runs at the time.
        """
        self._parent_id = message_id

    def take(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield these messages and the text that was written, each where it belongs; text comes as `stream`."""
        self._held.extend(messages)
        # Everything that was written before these messages is in the pipes by now.
        self._read_stderr()
        stderr, self._stderr = self._stderr, b""
        yield from self._text("stderr", stderr, "stderr")
        for _ in range(_TURN_BYTES // _READ_BYTES):
            yield from self._parsed()
            if self._waits:
                return
            data = self._read("stdout")
            if not data:
                break
            self._unread += data
        else:
            return
        # The pipe is empty: marks that have not come by now were lost, and an open one is none.
        yield from self._printed(self._unread)
        self._unread = b""
        while self._held:
            yield self._held.popleft()

    def close(self) -> None:
        """Close the descriptors; a second call does nothing."""
        for name in self._fds:
            self._close(name)

    def end(self) -> None:
        """Note that the process has ended: what it had not sent by then does not come."""
        self._ended = True
        self._read_stderr()

    def _read_stderr(self) -> None:
        for _ in range(_TURN_BYTES // _READ_BYTES):
            data = self._read("stderr")
            if not data:
                return
            self._stderr += data

    @property
    def _has_more(self) -> bool:
        return bool(self._held or self._unread or self._stderr) and not self._waits

    def _readable(self) -> list[int]:
        return [fd for name, fd in self._fds.items() if fd >= 0 and not (name == "stdout" and self._waits)]

    @property
    def _waits(self) -> bool:
        if self._awaited is not None and (
            self._fds["stdout"] < 0 or time.monotonic() - self._awaited_since > _MESSAGE_LIMIT_MS / 1000
        ):
            self._awaited = None
        return self._awaited is not None

    def _parsed(self) -> Iterator[Message]:
        """Yield what the text that was read amounts to, up to a mark whose message is not here yet."""
        if self._awaited is not None:
            yield from self._release(self._awaited)
        done = 0
        while not self._waits and (mark := self._mark.search(self._unread, done)):
            before, done = self._unread[done : mark.start()], mark.end()
            yield from self._printed(before)
            if mark[1] == b"M":
                yield from self._flushed()
                yield from self._release(int(mark[2] or 0))
            else:
                self._name = "stderr" if mark[1] == b"E" else "stdout"
        self._unread = self._unread[done:]
        if not self._waits:
            begun = self._unread.rfind(b"\x1e", -_MARK_BYTES)
            end = len(self._unread) if begun < 0 else begun
            text, self._unread = self._unread[:end], self._unread[end:]
            yield from self._printed(text)

    def _release(self, number: int) -> Iterator[Message]:
        """Yield the messages up to that one, or wait for it; when a later one is here, it was lost."""
        self._awaited = number
        while self._held:
            if _mark_of(self._held[0]) > number:
                self._awaited = None
                return
            message = self._held.popleft()
            yield message
            if _mark_of(message) == number:
                self._awaited = None
                return
        self._awaited_since = time.monotonic()

    def _printed(self, data: bytes) -> Iterator[Message]:
        return self._text("stdout" if self._name == "stdout" else "marked", data, self._name)

    def _text(self, decoder: str, data: bytes, name: str) -> Iterator[Message]:
        text = self._decoders[decoder].decode(data)
        if text:
            yield Message("stream", self._parent_id, {"name": name, "text": text})

    def _flushed(self) -> Iterator[Message]:
        """Yield what is left of characters that were begun and do not go on."""
        for decoder, name in (("stdout", "stdout"), ("marked", "stderr")):
            text = self._decoders[decoder].decode(b"", final=True)
            if text:
                yield Message("stream", self._parent_id, {"name": name, "text": text})

    def _read(self, name: str) -> bytes:
        fd = self._fds[name]
        if fd < 0:
            return b""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return b""
        if name == "stderr":
            self._on_stderr(data)
        if not data:
            self._close(name)
        return data

    def _close(self, name: str) -> None:
        if self._fds[name] >= 0:
            os.close(self._fds[name])
        self._fds[name] = -1


def _new_decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


def _mark_of(message: Message) -> int:
    content: Any = message.content
    mark = content.get("mark", 0) if isinstance(content, dict) else 0
    return mark if isinstance(mark, int) else 0
