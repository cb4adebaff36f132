"""Takes out of a text what a terminal would obey, and what does not show."""

import re
from functools import lru_cache
from typing import Final

from aeolus_sandbox.streaming.filters.base import Filter, TextFilter
from aeolus_sandbox.streaming.screen import ORDERS, SGR_LENGTH, is_plain_colour

# ECMA-48, 5.4 to 5.6. Whatever cannot go on a sequence ends it, so that one that never ends takes little with it.
_PARAMETERS: Final = r"[0-?]{0,256}"
_INTERMEDIATES: Final = r"[ -/]{0,8}"
_STRING: Final = r"[^\n\x07\x18\x1a\x1b\x80-\x9f]*"
_STRING_END: Final = (
    r"[\x07\x18\x1a\x9c]"  # `ESC \` needs no mention: any ESC ends a string and begins a sequence
)
_OPENS_STRING: Final = r"[PX\]^_]"
_OPENS_STRING_8_BIT: Final = r"[\x90\x98\x9d-\x9f]"
_BEGINNINGS: Final = "\x1b\x90\x98\x9b\x9d\x9e\x9f"

# Variation selectors but those of emoji: any data can be hidden in them. Joiners stay, for emoji and Persian.
_SELECTORS: Final = r"\ufe00-\ufe0d\U000e0100-\U000e01ef"
# It begins with one class of characters, not with alternatives: that is ten times as quick on plain text.
_SEQUENCE: Final = re.compile(
    rf"{ORDERS[:-1]}{_SELECTORS}](?:"
    rf"(?:(?<=\x1b)\[|(?<=\x9b)){_PARAMETERS}{_INTERMEDIATES}[@-~]?"
    rf"|(?:(?<=\x1b){_OPENS_STRING}|(?<={_OPENS_STRING_8_BIT})){_STRING}{_STRING_END}?"
    rf"|(?<=\x1b){_INTERMEDIATES}[0-~]?"
    r"|)"
)
_UNFINISHED: Final = re.compile(
    rf"(?:(?P<string>\x1b{_OPENS_STRING}|{_OPENS_STRING_8_BIT}){_STRING}"
    rf"|(?:\x1b\[|\x9b){_PARAMETERS}{_INTERMEDIATES}"
    rf"|\x1b{_INTERMEDIATES})\Z"
)
_COLOUR: Final = re.compile(rf"(?:\x1b\[|\x9b)([0-9;:]{{0,{SGR_LENGTH}}})m")


class CleanControls(Filter):
    """Takes out control sequences, single controls but tab and line ends, and characters that do not show.

    Boundary: nothing is left that sets the window's title, writes the clipboard, moves the cursor, or hides or
    reorders what is shown. Of a hyperlink the label stays. A sequence that never ends takes no more than the rest of
    its line.
    """

    colours: bool = False
    """Whether plain colours stay."""

    def start(self) -> TextFilter:
        """Return the filter at the beginning of a text."""
        return _Cleaner(colours=self.colours)


class _Cleaner:
    def __init__(self, *, colours: bool) -> None:
        self._replacement = (lambda match: _colour_in(match[0])) if colours else ""
        self._held = ""
        """A sequence that has not ended; of a string only its beginning, however long it is."""

    def feed(self, text: str) -> str:
        text = self._held + text
        self._held = ""
        latest = max(0, *map(text.rfind, _BEGINNINGS))
        if unfinished := _UNFINISHED.match(text, latest):
            self._held = unfinished["string"] or unfinished[0]
            text = text[:latest]
        return _SEQUENCE.sub(self._replacement, text)

    def flush(self) -> str:
        self._held = ""
        return ""


@lru_cache(maxsize=256)
def _colour_in(sequence: str) -> str:
    """Return a plain colour, in the form that every terminal knows; nothing of any other sequence."""
    colour = _COLOUR.fullmatch(sequence)
    return f"\x1b[{colour[1]}m" if colour is not None and is_plain_colour(colour[1]) else ""
