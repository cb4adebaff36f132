"""Lines of the console consumer: what is written where, so that no text can pass for another's.

Boundary: whatever comes in is hostile. Only plain colours of tools pass, and only where colours are on; a line of a
tool stays behind its gutter, however long it is and wherever it moves the cursor within its line.
"""

import re
from typing import Final

from aeolus_sandbox.consumers.console_paint import Paint, cells
from aeolus_sandbox.streaming.screen import RESET, ScreenFilter, harmless

_LINE_ENDS: Final = re.compile(r"(\r\n|\n|\r)")
_TOKENS: Final = re.compile(r"\x1b\[[0-9;:]*m|\t|[^\x1b\t]+")
_TAB: Final = 8
_CLEAR_LINE: Final = "\r\x1b[K"
_PICTURES: Final = str.maketrans({"\n": "\u240a", "\r": "\u240d", "\t": " "})


def one_line(text: str, max_characters: int) -> str:
    """Return the beginning of a text on one line, harmless, and how much of it is missing."""
    head = harmless(text[:max_characters]).translate(_PICTURES)
    left_out = len(text) - max_characters
    return f"{head} ... ({left_out} more characters)" if left_out > 0 else head


class Prose:
    """Text of the model, in pieces: no colours, and no carriage return that would write over what stands there."""

    def __init__(self) -> None:
        self._screen = ScreenFilter(colours=False)
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what may be shown of the next piece."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r").replace("\r\n", "\n").replace("\r", "\u240d")
        return self._screen.feed(text)

    def flush(self) -> str:
        """Return what was held back, at the end of the text."""
        held, self._held = self._held, ""
        return self._screen.feed("\u240d" if held else "") + self._screen.flush()


class Gutter:
    """Output of one tool call, in pieces, behind a gutter."""

    def __init__(self, label: str, paint: Paint) -> None:
        self._prefix = paint("gutter", f"{label} \u2502 ")
        self._prefix_columns = cells(f"{label} \u2502 ")
        self._colours = paint.has_colours
        self._screen = ScreenFilter(colours=paint.has_colours)
        self._held = ""
        self._column = 0
        self._is_open = False

    def feed(self, text: str, columns: int | None) -> str:
        """Return what to write for the next piece.

        Args:
            text: It.
            columns: How wide the terminal is; None: it is none, and nothing is written over or folded.
        """
        text = self._held + self._screen.feed(text)
        self._held = "\r" if text.endswith("\r") else ""
        parts = _LINE_ENDS.split(text.removesuffix("\r"))
        out: list[str] = []
        for line, end in zip(parts[::2], [*parts[1::2], ""], strict=True):
            if line or (end and not self._is_open):
                self._line(line, columns, out)
            if end == "\r" and columns is not None:
                out.append(self._reset() + _CLEAR_LINE)
                self._is_open = False
            elif end:
                out.append(self.end_line())
        return "".join(out)

    def end_line(self) -> str:
        """Return what ends the line that is open, if one is."""
        if not self._is_open:
            return ""
        self._is_open = False
        return self._reset() + "\n"

    def give_way(self) -> str:
        """Return what ends the line that is open, because something else is written now."""
        self._held = ""
        return self.end_line()

    def flush(self, columns: int | None) -> str:
        """Return what was held back, at the end of the output, and the end of its last line."""
        self._held = ""
        rest = self._screen.flush().removesuffix(RESET)
        return (self.feed(rest, columns) if rest else "") + self.end_line()

    def _line(self, line: str, columns: int | None, out: list[str]) -> None:
        self._begin(out)
        for token in _TOKENS.findall(line):
            if token.startswith("\x1b") or columns is None:
                out.append(token)
            else:
                self._fold(token.replace("\t", _tab(self._column)), columns, out)

    def _fold(self, text: str, columns: int, out: list[str]) -> None:
        while text:
            taken = _fitting(text, columns - self._prefix_columns - self._column)
            if not taken and self._column == 0:
                taken = text[:1]  # wider than the terminal
            out.append(taken)
            self._column += cells(taken)
            text = text[len(taken) :]
            if text:
                out.append(self.end_line())
                self._begin(out)

    def _begin(self, out: list[str]) -> None:
        if not self._is_open:
            out.append(self._prefix)
            self._is_open = True
            self._column = 0

    def _reset(self) -> str:
        return RESET if self._colours else ""


def _tab(column: int) -> str:
    return " " * (_TAB - column % _TAB)


def _fitting(text: str, room: int) -> str:
    """Return the longest beginning of a text that takes at most `room` columns."""
    if room <= 0:
        return ""
    taken = text[:room]
    while taken and cells(taken) > room:
        taken = taken[: len(taken) - max(1, (cells(taken) - room) // 2)]
    return taken
