"""Lines from a terminal or a pipe that were typed after a certain moment; waiting for one can be ended."""

import os
import select
import termios
from contextlib import suppress
from typing import IO, Final

_READ_BYTES: Final = 64 * 1024
_MAX_AHEAD_BYTES: Final = 1024 * 1024
"""How much is taken from a pipe as typed ahead; what writes more than that without a pause is no person."""
_MAX_BYTES: Final = 1024 * 1024
"""The longest line."""


class NoAnswer(Exception):
    """Nobody answers; the message says why."""


class Wake:
    """Ends a wait for a line from another thread, or from a signal handler."""

    def __init__(self) -> None:
        self.fd, self._writing = os.pipe()
        """`fd` becomes readable."""
        os.set_blocking(self._writing, False)
        self._is_closed = False
        self.why = ""
        """Why the wait is ended, once it is."""

    def up(self, why: str) -> None:
        """End the wait; the first reason counts."""
        if not self._is_closed and not self.why:
            self.why = why
            os.write(self._writing, b"\0")

    def close(self) -> None:
        """Let go of the descriptors; called when nobody waits any more."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self.fd)
            os.close(self._writing)


class Keyboard:
    """Reads lines from a descriptor, past any buffer of Python's; leaves a terminal's settings as they are."""

    def __init__(self, stream: IO[str] | None, wake: Wake) -> None:
        """Begin.

        Raises:
            NoAnswer: There is nothing to read from.
        """
        try:
            if stream is None:
                raise OSError
            self._fd = stream.fileno()
        except (OSError, ValueError) as error:
            msg = "there is no input"
            raise NoAnswer(msg) from error
        if _is_in_background(self._fd):
            msg = "the program runs in the background of its terminal"
            raise NoAnswer(msg)
        self._wake = wake
        self._held = b""
        self._is_mid_line = False

    def forget(self) -> None:
        """Drop what was typed up to now.

        Raises:
            NoAnswer: It does not end.
        """
        if os.isatty(self._fd):
            with suppress(termios.error):
                termios.tcflush(self._fd, termios.TCIFLUSH)
            return
        ahead = 0
        while select.select([self._fd], [], [], 0)[0] and (data := self._read()):
            ahead += len(data)
            self._is_mid_line = not data.endswith(b"\n")
            if ahead > _MAX_AHEAD_BYTES:
                msg = "the input was written without waiting for the question"
                raise NoAnswer(msg)

    def line(self) -> str:
        """Wait for a whole line and return it without its end.

        Raises:
            NoAnswer: The input ended, the wait was ended, or the line began before what was typed was forgotten.
        """
        while b"\n" not in self._held:
            # select, because macOS cannot poll terminals.
            ready, _, _ = select.select([self._fd, self._wake.fd], [], [])
            if self._wake.fd in ready:
                raise NoAnswer(self._wake.why)
            data = self._read()
            if not data:
                msg = "the input has ended"
                raise NoAnswer(msg)
            self._held += data
            if len(self._held) > _MAX_BYTES:
                msg = "the answer is too long"
                raise NoAnswer(msg)
        line, _, self._held = self._held.partition(b"\n")
        if self._is_mid_line:
            msg = "the answer was begun before the question appeared"
            raise NoAnswer(msg)
        return line.decode("utf-8", "replace").removesuffix("\r")

    def is_quiet(self) -> bool:
        """Return whether nothing has come after the line; its end may have."""
        return not self._held and not (select.select([self._fd], [], [], 0)[0] and self._read())

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, _READ_BYTES)
        except OSError as error:  # a terminal that was hung up, a descriptor that was closed
            msg = f"the input cannot be read: {error.strerror}"
            raise NoAnswer(msg) from error


def _is_in_background(fd: int) -> bool:
    """Return whether reading from our own terminal would stop us: credentials(7), SIGTTIN."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:  # no terminal, or not ours
        return False
