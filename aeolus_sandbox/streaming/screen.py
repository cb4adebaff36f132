"""Makes what a container says harmless to the operator's terminal: pure, and property-tested.

Boundary: text from a container may set the window's title, write the clipboard, clear the screen, hide or reorder what
is shown. Nothing but plain colours (where colours are on), line ends, carriage returns and tabs passes; everything
else that a terminal would obey is made visible, so that nothing is hidden either.
"""

import re
from typing import Final

RESET: Final = "\x1b[0m"

SGR_LENGTH: Final = 60
"""The longest colour sequence that is taken for one, in characters between `ESC [` and `m`."""
_SGR: Final = rf"\x1b\[([0-9;:]{{0,{SGR_LENGTH}}})m"
# C0 but tab, line feed and carriage return; DEL and C1; marks and orders of text direction; line and paragraph
# separators; invisible operators and annotations; lone surrogates; tags (invisible ASCII).
ORDERS: Final = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    r"\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)
"""A pattern of one character that a terminal obeys, or that does not show."""
_UNSAFE: Final = re.compile(f"{_SGR}|{ORDERS}")
_PERHAPS_SGR: Final = re.compile(rf"\x1b(?:\[[0-9;:]{{0,{SGR_LENGTH}}})?\Z")
# ECMA-48, 8.3.117: no blinking (5, 6), no concealing (8), no fonts.
_PLAIN: Final = frozenset([0, 1, 2, 3, 4, 7, *range(21, 26), 27, *range(30, 38), 39, *range(40, 48), 49])
_BRIGHT: Final = frozenset([*range(90, 98), *range(100, 108)])
_EXTENDED: Final = {5: 1, 2: 3}
"""Values after `38` or `48`: how many follow an index of a palette, and a colour."""


class ScreenFilter:
    """Filters one stream of text, in whatever pieces it comes."""

    def __init__(self, *, colours: bool) -> None:
        """Start a stream.

        Args:
            colours: Whether plain colours pass; otherwise they are dropped.
        """
        self._colours = colours
        self._held = ""
        self._coloured = False

    def feed(self, text: str) -> str:
        """Return what may be shown of the next piece; the start of a colour that is cut is held back."""
        text = self._held + text
        self._held = ""
        if match := _PERHAPS_SGR.search(text):
            self._held = match[0]
            text = text[: match.start()]
        return _UNSAFE.sub(self._replacement, text)

    def flush(self) -> str:
        """Return what is left at the end, and put the colours back."""
        held, self._held = self._held, ""
        rest = _UNSAFE.sub(self._replacement, held)
        coloured, self._coloured = self._coloured, False
        return rest + RESET if coloured else rest

    def _replacement(self, match: re.Match[str]) -> str:
        parameters = match[1]
        if parameters is None:
            return _visible(match[0])
        if not is_plain_colour(parameters):
            return _visible("\x1b") + match[0][1:]
        if not self._colours:
            return ""
        self._coloured = True
        return match[0]


def harmless(text: str) -> str:
    """Return a whole text, without colours, as it may be shown."""
    screen = ScreenFilter(colours=False)
    return screen.feed(text) + screen.flush()


def _visible(order: str) -> str:
    code = ord(order)
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's pictures of the control characters
    if code == 0x7F:
        return "\u2421"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"<U+{code:04X}>"


def is_plain_colour(parameters: str) -> bool:
    """Return whether a colour sequence of these parameters does nothing but colour and emphasise."""
    values = [int(value) if value else 0 for value in re.split("[;:]", parameters)]
    while values:
        value = values.pop(0)
        if value in {38, 48}:
            following = _EXTENDED.get(values[0] if values else -1)
            if following is None or len(values) < following + 1:
                return False
            del values[: following + 1]
        elif value not in _PLAIN and value not in _BRIGHT:
            return False
    return True
