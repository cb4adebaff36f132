"""What joins a `LocalEngine` and its containers: three pipes, or one terminal."""

import asyncio
import os
from collections.abc import Sequence
from typing import Final, Self

from aeolus_sandbox.engine.base import AttachStream
from aeolus_sandbox.errors import SessionClosed
from aeolus_sandbox.pieces import Piece, StreamName

_PAUSE_ABOVE_BYTES: Final = 1024 * 1024
"""Reading pauses while more than this waits for the reader, as it does with Docker."""


class LocalStream(AttachStream):
    """Both directions of a local container.

    The container's ends stay open here until it has ended, as Docker's init keeps them open: so the end of output
    means the end of the container.
    """

    def __init__(self, *, tty: bool) -> None:
        self.container_ends: tuple[int, ...] = ()
        """Descriptors for the container: its terminal, or stdin, stdout and stderr."""
        self.terminal: int | None = None
        """Our side of the terminal."""
        self._tty = tty
        self._pieces: list[Piece] = []
        self._held_bytes = 0
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._outputs: list[asyncio.ReadTransport] = []
        self._open_outputs = 0
        self._input: asyncio.WriteTransport | None = None
        self._detached = False
        self._input_closed = False
        self._error: Exception | None = None

    @classmethod
    async def connected(cls, *, tty: bool) -> Self:
        """Return a stream that is attached already, although nothing has started."""
        stream = cls(tty=tty)
        try:
            await (stream._open_terminal() if tty else stream._open_pipes())
        except BaseException:
            stream.dispose()
            raise
        return stream

    async def read(self) -> Sequence[Piece]:
        """Return what has arrived; see `AttachStream.read`."""
        await self._readable.wait()
        pieces, self._pieces, self._held_bytes = self._pieces, [], 0
        if pieces:
            if not self._has_ended:
                self._readable.clear()
                self._resume()
            return pieces
        if self._error is not None:
            raise self._error
        return ()

    async def write(self, data: bytes) -> None:
        """Write to stdin; see `AttachStream.write`."""
        self._open_input().write(data)
        await self._writable.wait()

    def write_eof(self) -> None:
        """Half-close; see `AttachStream.write_eof`. A terminal has no such thing."""
        stdin = self._open_input()
        if not self._tty:
            self._input_closed = True
            stdin.write_eof()

    async def aclose(self) -> None:
        """Detach: stdin ends, and output goes nowhere, but the container may go on."""
        self.detach(None)

    def detach(self, error: Exception | None) -> None:
        """Cut the stream; the reader gets what has arrived, then the error."""
        self._detached = True
        self._error = self._error or error
        if self._input is not None and not self._tty:
            self._input.close()
        self._wake()
        self._resume()

    def container_ended(self) -> None:
        """Let go of the container's ends: what it wrote is still to be read."""
        for descriptor in self.container_ends:
            os.close(descriptor)
        self.container_ends = ()
        stdin, self._input = self._input, None
        if stdin is not None:
            stdin.abort()
        self._writable.set()
        if self._open_outputs == 0:
            self._wake()

    def dispose(self) -> None:
        """Close everything."""
        self.container_ended()
        for output in self._outputs:
            output.close()
        self.terminal = None

    # From the protocols.

    def received(self, name: StreamName, data: bytes) -> None:
        """Take in what the container wrote."""
        if self._detached:
            return
        self._pieces.append(Piece(name, data))
        self._held_bytes += len(data)
        self._readable.set()
        if self._held_bytes > _PAUSE_ABOVE_BYTES:
            for output in self._outputs:
                output.pause_reading()

    def output_ended(self) -> None:
        """Note that one of the outputs has ended."""
        self._open_outputs -= 1
        if self._open_outputs == 0:
            self._wake()

    def input_ended(self) -> None:
        """Note that nothing more can be written."""
        self._input = None
        self._writable.set()

    def may_write(self, allowed: bool) -> None:
        """Let writers go on, or make them wait."""
        if allowed:
            self._writable.set()
        elif not self._has_ended:
            self._writable.clear()

    @property
    def _has_ended(self) -> bool:
        return self._detached or self._open_outputs == 0

    def _wake(self) -> None:
        self._readable.set()
        self._writable.set()

    def _resume(self) -> None:
        for output in self._outputs:
            if not output.is_closing():
                output.resume_reading()

    def _open_input(self) -> asyncio.WriteTransport:
        if self._input is None or self._input_closed or self._has_ended or self._input.is_closing():
            msg = "the container's stdin is closed: the session has ended"
            raise SessionClosed(msg)
        return self._input

    async def _open_terminal(self) -> None:
        ours, theirs = os.openpty()
        self.container_ends = (theirs,)
        self.terminal = ours
        await self._take_output("stdout", ours)
        await self._take_input(os.dup(ours))

    async def _open_pipes(self) -> None:
        stdin, our_stdin = os.pipe()
        our_stdout, stdout = os.pipe()
        our_stderr, stderr = os.pipe()
        self.container_ends = (stdin, stdout, stderr)
        await self._take_input(our_stdin)
        await self._take_output("stdout", our_stdout)
        await self._take_output("stderr", our_stderr)

    async def _take_output(self, name: StreamName, descriptor: int) -> None:
        file = os.fdopen(descriptor, "rb", buffering=0)
        self._open_outputs += 1
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: _Output(self, name), file)
        self._outputs.append(transport)

    async def _take_input(self, descriptor: int) -> None:
        file = os.fdopen(descriptor, "wb", buffering=0)
        self._input, _ = await asyncio.get_running_loop().connect_write_pipe(lambda: _Input(self), file)


class _Output(asyncio.Protocol):
    def __init__(self, stream: LocalStream, name: StreamName) -> None:
        self._stream = stream
        self._name = name

    def data_received(self, data: bytes) -> None:
        self._stream.received(self._name, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stream.output_ended()


class _Input(asyncio.BaseProtocol):
    def __init__(self, stream: LocalStream) -> None:
        self._stream = stream

    def pause_writing(self) -> None:
        self._stream.may_write(False)

    def resume_writing(self) -> None:
        self._stream.may_write(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stream.input_ended()
