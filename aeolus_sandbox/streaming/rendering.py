"""What a line of terminal output looks like in the end: carriage returns overwrite, escape sequences are gone.

A progress bar that is redrawn ten thousand times is one line. Only one line is held at a time.
"""

import re
from typing import Final

MAX_COLUMNS: Final = 64 * 1024
"""A line is cut here, so that a flood without a newline costs no memory."""

_TOKEN: Final = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|\x1b\[(?P<erase>[0-2]?)K"
    r"|\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])"
    r"|(?P<control>[\x00-\x1f\x7f-\x9f])"
)
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,4096}\x1b?|[ -/]*)?\Z")


class LineRenderer:
    """Turns pieces of terminal output into the text that a reader of the screen would see."""

    def __init__(self) -> None:
        self._held = ""
        self._cells: list[str] = []
        self._column = 0

    def feed(self, text: str) -> str:
        """Return the lines that `text` completes, each with its newline."""
        text = self._held + text
        unfinished = _UNFINISHED.search(text)
        self._held = text[unfinished.start() :] if unfinished else ""
        done: list[str] = []
        for token in _TOKEN.finditer(text, 0, len(text) - len(self._held)):
            self._take(token, done)
        return "".join(done)

    def flush(self) -> str:
        """Return what is left at the end of the stream."""
        self._held = ""
        return self._finish_line()

    def _take(self, token: "re.Match[str]", done: list[str]) -> None:
        if (printed := token["text"]) is not None:
            self._write(printed)
        elif (erase := token["erase"]) is not None:
            self._erase(erase or "0")
        elif token["control"] == "\n":
            done.append(self._finish_line() + "\n")
        elif token["control"] == "\r":
            self._column = 0
        elif token["control"] == "\b":
            self._column = max(0, self._column - 1)
        elif token["control"] == "\t":
            self._write("\t")

    def _write(self, printed: str) -> None:
        end = self._column + len(printed)
        if end > MAX_COLUMNS:
            printed, end = printed[: MAX_COLUMNS - self._column], MAX_COLUMNS
        if self._column > len(self._cells):
            self._cells.extend(" " * (self._column - len(self._cells)))
        self._cells[self._column : end] = printed
        self._column = end

    def _erase(self, which: str) -> None:
        if which == "0":
            del self._cells[self._column :]
        elif which == "1":
            stop = min(self._column + 1, len(self._cells))
            self._cells[:stop] = " " * stop
        else:
            self._cells.clear()

    def _finish_line(self) -> str:
        line = "".join(self._cells)
        self._cells, self._column = [], 0
        return line


def render_text(text: str) -> str:
    """Return what a whole terminal output looks like in the end."""
    renderer = LineRenderer()
    return renderer.feed(text) + renderer.flush()
