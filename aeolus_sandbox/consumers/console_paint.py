"""Colours of the console consumer, and what the terminal is: its door to rich."""

import os
from dataclasses import dataclass
from typing import IO, Final, Literal

Style = Literal["reasoning", "tool", "gutter", "good", "bad", "remark"]

_STYLES: Final[dict[Style, str]] = {
    "reasoning": "dim italic",
    "tool": "cyan",
    "gutter": "dim cyan",
    "good": "green",
    "bad": "bold red",
    "remark": "yellow",
}
_MARK: Final = "X"
_NARROWEST: Final = 20


@dataclass(frozen=True, slots=True)
class Paint:
    """What stands before and after a text of each style; nothing where there are no colours."""

    codes: dict[Style, tuple[str, str]]

    @property
    def has_colours(self) -> bool:
        """Whether there are any."""
        return bool(self.codes)

    def __call__(self, style: Style, text: str) -> str:
        """Return a text in a style."""
        before, after = self.codes.get(style, ("", ""))
        return f"{before}{text}{after}" if text else ""


def paint_for(stream: IO[str], *, colours: bool | None) -> Paint:
    """Return the colours for a stream; None: as the terminal and its environment (`NO_COLOR`) say."""
    # Only now: whoever shows nothing does not pay for rich.
    from rich.color import ColorSystem
    from rich.console import Console
    from rich.style import Style as RichStyle

    wanted = Console(file=stream).color_system is not None if colours is None else colours
    if not wanted:
        return Paint({})
    codes: dict[Style, tuple[str, str]] = {}
    for name, definition in _STYLES.items():
        rendered = RichStyle.parse(definition).render(_MARK, color_system=ColorSystem.STANDARD)
        before, _, after = rendered.partition(_MARK)
        codes[name] = before, after
    return Paint(codes)


def cells(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def columns_of(stream: IO[str]) -> int | None:
    """Return how wide the terminal is behind a stream; None: it is none."""
    try:
        return max(_NARROWEST, os.get_terminal_size(stream.fileno()).columns) if stream.isatty() else None
    except (OSError, ValueError):  # it is no file, or closed
        return None
