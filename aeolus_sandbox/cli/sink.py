"""Where output goes: exact bytes to a file or pipe, and only what is harmless to a terminal."""

import codecs
import os
import sys
from typing import Final, TextIO

from aeolus_sandbox.streaming.screen import ScreenFilter

NO_COLOUR_VARIABLE: Final = "NO_COLOR"
"""https://no-color.org"""


def shows_colours(stream: TextIO) -> bool:
    """Return whether colours may go to this stream."""
    return stream.isatty() and not os.environ.get(NO_COLOUR_VARIABLE) and os.environ.get("TERM") != "dumb"


class Sink:
    """One of our output streams; writing blocks, so call it from a thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._screen = ScreenFilter(colours=shows_colours(stream)) if stream.isatty() else None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line_is_open = False

    @property
    def is_screen(self) -> bool:
        """Whether it is a terminal."""
        return self._screen is not None

    def write(self, data: bytes) -> None:
        """Write what a container said."""
        if self._screen is not None:
            text = self._screen.feed(self._decoder.decode(data))
            data = text.encode("utf-8", "replace")
        self._write(data)

    def write_line(self, text: str) -> None:
        """Write a whole line of what a container said, on a line of its own."""
        start = "\n" if self._line_is_open else ""
        end = "" if text.endswith("\n") else "\n"
        self.write(f"{start}{text}{end}".encode("utf-8", "replace"))

    def finish(self) -> None:
        """End the container's output: nothing is held back, and its colours do not go on."""
        if self._screen is not None:
            rest = self._screen.feed(self._decoder.decode(b"", final=True)) + self._screen.flush()
            self._write(rest.encode("utf-8", "replace"))

    def end_line(self) -> None:
        """Start a new line on a terminal if one is open, so that a message of ours stands by itself."""
        if self.is_screen and self._line_is_open:
            self._write(b"\n")

    def _write(self, data: bytes) -> None:
        if data:
            self._stream.buffer.write(data)
            self._stream.buffer.flush()
            self._line_is_open = not data.endswith(b"\n")


def stop_writing() -> None:
    """Point stdout at nothing, after its reader has gone: the interpreter flushes it once more at its end."""
    with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), sys.stdout.fileno())
