"""The attached stream of a Docker container: the hijacked connection, read and written without detours.

Docker upgrades the HTTP connection of an attach call to a raw one. aiodocker opens it; from then on this protocol
reads it directly, because aiodocker has no half-close and parses at about half the speed of the socket.
"""

import asyncio
import threading
from collections.abc import Sequence
from typing import Final

import aiohttp

from aeolus_sandbox.engine.base import AttachStream
from aeolus_sandbox.engine.multiplex import FrameDecoder
from aeolus_sandbox.errors import EngineError, SessionClosed
from aeolus_sandbox.pieces import Piece

_PAUSE_ABOVE_BYTES: Final = 1024 * 1024
"""Reading from the socket pauses while more than this waits for the reader."""
_BUFFER_BYTES: Final = 256 * 1024
"""What is read at once."""


class _Memory(threading.local):
    """What is read into: always the same memory, because a new large block for each read costs more than the read.

    All streams of a thread share it, so that one that waits costs none: an event loop asks for the memory, fills it
    and gives it back (`buffer_updated` copies) before it does anything else.
    """

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_BUFFER_BYTES))


_memory: Final = _Memory()


class HijackedStream(asyncio.BufferedProtocol, AttachStream):
    """Both directions of an attached container."""

    def __init__(self, response: aiohttp.ClientResponse, *, tty: bool) -> None:
        connection = response.connection
        if connection is None or connection.transport is None:
            msg = f"the engine closed the attach connection at once (HTTP status {response.status})"
            raise EngineError(msg)
        self._response = response
        self._transport: asyncio.Transport = connection.transport
        self._decoder = None if tty else FrameDecoder()
        self._pieces: list[Piece] = []
        self._held_bytes = 0
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = False
        self._closed = False
        self._input_ended = False
        self._error: Exception | None = None
        self._transport.set_protocol(self)
        self._transport.resume_reading()

    async def read(self) -> Sequence[Piece]:
        """Return what has arrived; see `AttachStream.read`."""
        await self._readable.wait()
        pieces, self._pieces, self._held_bytes = self._pieces, [], 0
        if pieces:
            if not self._ended:
                self._readable.clear()
                self._transport.resume_reading()
            return pieces
        if self._error is not None:
            raise self._error
        return ()

    async def write(self, data: bytes) -> None:
        """Write to stdin; see `AttachStream.write`."""
        self._check_writable()
        self._transport.write(data)
        await self._writable.wait()

    def write_eof(self) -> None:
        """Half-close; see `AttachStream.write_eof`."""
        self._check_writable()
        # Docker passes the end on to the container's stdin because of StdinOnce; without it, it would end the output.
        self._input_ended = True
        self._transport.write_eof()

    async def aclose(self) -> None:
        """Close both directions; see `AttachStream.aclose`."""
        self._closed = True
        self._transport.abort()
        self._response.close()

    def _check_writable(self) -> None:
        if self._closed or self._ended or self._input_ended or self._transport.is_closing():
            msg = "the container's stdin is closed: the session has ended, or its input has"
            raise SessionClosed(msg)

    # asyncio.BufferedProtocol

    def get_buffer(self, sizehint: int) -> memoryview:
        """Give the memory to read into."""
        return _memory.view

    def buffer_updated(self, nbytes: int) -> None:
        """Take in what the engine sent."""
        data = _memory.view[:nbytes]
        try:
            pieces = [Piece("stdout", bytes(data))] if self._decoder is None else self._decoder.feed(data)
        except EngineError as error:
            self._end(error)
            self._transport.abort()
            return
        self._pieces.extend(pieces)
        self._held_bytes += nbytes
        self._readable.set()
        if self._held_bytes > _PAUSE_ABOVE_BYTES:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """Note the end of output; the connection closes."""
        self._end(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection."""
        self._end(
            None if exc is None or self._closed else EngineError(f"the attach connection was lost: {exc}")
        )

    def pause_writing(self) -> None:
        """Make writers wait: the container does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let writers go on."""
        self._writable.set()

    def _end(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._ended = True
        if error is None and self._decoder is not None and self._decoder.is_inside_frame and not self._closed:
            error = EngineError("the attach connection was cut in the middle of a frame")
        self._error = error
        self._readable.set()
        self._writable.set()
