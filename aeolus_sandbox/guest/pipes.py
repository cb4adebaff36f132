"""The guest's two pipes: request lines in, reply frames out, without a thread and without blocking the loop."""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from aeolus_sandbox.guest.frames import Frame, encode_frame

READ_BYTES: Final = 256 * 1024
HIGH_WATER_BYTES: Final = 1024 * 1024
"""How much may wait for the host before producers are asked to wait too."""


class RequestReader:
    """Reads a file descriptor (pipe, socket, terminal or file) and hands on what comes.

    `on_data` gets each piece, `on_end` is called once, at the end of input or when reading fails.
    """

    def __init__(self, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._fd = fd
        self._on_data = on_data
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._watched = False
        self._stopped = False

    def start(self) -> None:
        """Begin to read."""
        try:
            self._loop.add_reader(self._fd, self._read)
            self._watched = True
        except PermissionError:  # epoll refuses regular files, which are always readable
            self._loop.call_soon(self._read)

    def stop(self) -> None:
        """Read no more; a second call does nothing."""
        self._stopped = True
        if self._watched:
            self._loop.remove_reader(self._fd)
            self._watched = False

    def _read(self) -> None:
        if self._stopped:
            return
        try:
            data = os.read(self._fd, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.stop()
            self._on_end()
            return
        self._on_data(data)
        if not self._watched:
            self._loop.call_soon(self._read)


class ReplyWriter:
    """Writes frames whole and in order, and knows when producers should wait.

    Posting never blocks, so that an interrupt is still heard while the host does not read;
    whoever posts much awaits `wait_room` in between.
    """

    def __init__(self, fd: int, on_broken: Callable[[], None]) -> None:
        self._fd = fd
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._waiting_for_fd = False
        self._broken = False
        self._room = asyncio.Event()
        self._room.set()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._was_blocking = os.get_blocking(fd)
        os.set_blocking(fd, False)

    @property
    def congested(self) -> bool:
        """Whether the host is behind with reading."""
        return not self._room.is_set()

    def post(self, *frames: Frame) -> None:
        """Send the frames as soon as the host takes them; at once, if it can.

        Raises:
            FrameError: A frame is too long.
        """
        self.post_lines(b"".join(map(encode_frame, frames)))

    def post_lines(self, lines: bytes) -> None:
        """Send frames that are encoded already."""
        if self._broken or not lines:
            return
        self._unsent.append(memoryview(lines))
        self._unsent_bytes += len(lines)
        if not self._waiting_for_fd:
            self._flush()

    async def wait_room(self) -> None:
        """Wait until the host has taken most of what was posted."""
        await self._room.wait()

    async def wait_flushed(self) -> None:
        """Wait until the host has taken everything."""
        await self._flushed.wait()

    def close(self) -> None:
        """Stop writing and leave the descriptor as it was; a second call does nothing."""
        self._watch(wanted=False)
        if not self._broken:
            os.set_blocking(self._fd, self._was_blocking)
        self._broken = True

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._write_some()
        except (BlockingIOError, InterruptedError):
            self._watch(wanted=True)
        except OSError:  # the host is gone
            self._broken = True
            self._unsent.clear()
            self._unsent_bytes = 0
            self._on_broken()
        if not self._unsent:
            self._watch(wanted=False)
        self._update_events()

    def _write_some(self) -> None:
        # A write can be short, also on a pipe (seen under gVisor at 64 KiB).
        written = os.write(self._fd, self._unsent[0])
        self._unsent_bytes -= written
        if written == len(self._unsent[0]):
            self._unsent.popleft()
        else:
            self._unsent[0] = self._unsent[0][written:]

    def _watch(self, *, wanted: bool) -> None:
        if wanted and not self._waiting_for_fd:
            self._loop.add_writer(self._fd, self._flush)
        elif self._waiting_for_fd and not wanted:
            self._loop.remove_writer(self._fd)
        self._waiting_for_fd = wanted

    def _update_events(self) -> None:
        for event, is_set in (
            (self._room, self._unsent_bytes < HIGH_WATER_BYTES),
            (self._flushed, not self._unsent),
        ):
            if is_set:
                event.set()
            else:
                event.clear()
