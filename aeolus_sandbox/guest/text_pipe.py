"""What code prints, read from pipes by a small kernel; see `small_kernel`."""

import codecs
import fcntl
import os
import struct
import termios
from collections.abc import Callable
from typing import Final

from aeolus_sandbox.guest.small_kernel import SmallKernel

_READ_BYTES: Final = 64 * 1024


class TextPipe:
    """A pipe that code writes to under a path; its text is handed on as it comes, valid Unicode whatever it is."""

    def __init__(self, kernel: SmallKernel, write: Callable[[str], None]) -> None:
        self._kernel = kernel
        self._write = write
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fd, self._write_fd = os.pipe()
        os.set_blocking(self._fd, False)  # what was reported as readable may have been drained since
        kernel.watch(self._fd, self._read)

    @property
    def path(self) -> str:
        """Where code finds the end to write to, as long as it is not released."""
        return path_of(self._write_fd)

    def release(self) -> None:
        """Drain it; go on with what programs that still have it open write, to their end."""
        os.close(self._write_fd)
        self.drain()

    def drain(self) -> None:
        """Hand on what is in the pipe now."""
        held = unread_bytes(self._fd)
        while held > 0:
            data = os.read(self._fd, min(held, _READ_BYTES))
            held -= len(data)
            self._write(self._decoder.decode(data))
        self._write(self._decoder.decode(b"", final=True))

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        self._write(self._decoder.decode(data, final=not data))
        if not data:
            self._kernel.unwatch(self._fd)
            os.close(self._fd)


def path_of(fd: int) -> str:
    """Return a path under which another process of the same user can open a descriptor of this one."""
    return f"/proc/{os.getpid()}/fd/{fd}"


def unread_bytes(fd: int) -> int:
    """Return how much is in a pipe, asked at either end."""
    held: int = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]
    return held
