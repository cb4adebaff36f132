"""The operator's own terminal: its size, and its raw mode, which is put back in every case."""

import os
import sys
import termios
import tty
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from aeolus_sandbox.streaming.sandbox import DEFAULT_COLS, DEFAULT_ROWS

# Shown again and switched off: the cursor; mouse reports, focus reports, bracketed paste; colours.
_SOFT_RESET: Final = b"\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[0m"


def is_at_terminal() -> bool:
    """Return whether keys and screen are both the operator's terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def terminal_size() -> tuple[int, int]:
    """Return columns and rows of the operator's terminal."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return DEFAULT_COLS, DEFAULT_ROWS
    return size.columns or DEFAULT_COLS, size.lines or DEFAULT_ROWS


class RawTerminal:
    """Raw mode while it is entered: every key, Ctrl-C too, is a byte for the sandbox."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._saved: list[Any] | None = None

    def __enter__(self) -> Self:
        self._saved = termios.tcgetattr(self._fd)
        # At once: what was typed ahead is kept (TCSAFLUSH would drop it), and a stuck screen is not waited for.
        tty.setraw(self._fd, termios.TCSANOW)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.restore()

    def restore(self) -> None:
        """Put the terminal's mode back; without effect the second time, or when the terminal is gone."""
        saved, self._saved = self._saved, None
        if saved is not None:
            with suppress(termios.error, OSError):
                termios.tcsetattr(self._fd, termios.TCSANOW, saved)

    def reset_screen(self) -> None:
        """Undo what a program that was killed can have left switched on."""
        with suppress(OSError):
            os.write(sys.stdout.fileno(), _SOFT_RESET)
