"""Long text cut to a limit: the head and the tail stay, and the cut says how much is missing."""

import re
import unicodedata
from collections import deque
from collections.abc import Callable
from typing import Final

from aeolus_sandbox.streaming.filters import FilterChain, TextFilter
from aeolus_sandbox.streaming.rendering import MAX_COLUMNS

_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\-_])")
_LONGEST_UNIT: Final = 64
"""How far back a cut looks for the beginning of a character cluster or an escape sequence."""
_JOINER: Final = "\u200d"
_VARIATION_SELECTORS: Final = range(0xFE00, 0xFE10)
_SKIN_TONES: Final = range(0x1F3FB, 0x1F400)


def clip_text(text: str, max_characters: int) -> str:
    """Return `text` if it fits, else its head and tail with a marker between them, at most `max_characters` in all.

    No character cluster and no escape sequence is cut in two.
    """
    return _clipped(text, text, len(text), max_characters)


class ClippedText:
    """The gist of a long output, fed piece by piece: its head and tail, rendered and clipped when asked for."""

    def __init__(
        self,
        max_characters: int,
        *,
        held_characters: int = MAX_COLUMNS // 2,
        new_filter: Callable[[], TextFilter] = lambda: FilterChain(()),
    ) -> None:
        """Begin.

        Args:
            max_characters: The longest that the gist may be.
            held_characters: How much of the head, and of the tail, is kept to make it of; both together are no longer
                than a line may be, so that rendering cuts nothing off unseen.
            new_filter: Gives the filter for each flow of text; what it takes out is not in the gist.
        """
        self._max_characters = max_characters
        self._held_characters = held_characters
        self._new_filter = new_filter
        self._filters: dict[str, TextFilter] = {}
        self._head: list[str] = []
        self._head_characters = 0
        self._tail: deque[str] = deque()
        self._tail_characters = 0
        self.characters = 0
        """How many characters were fed in all."""

    def feed(self, text: str, *, flow: str = "") -> None:
        """Take in the next piece of a flow, such as `stdout`."""
        if flow not in self._filters:
            self._filters[flow] = self._new_filter()
        self._take(self._filters[flow].feed(text))

    def rendered(self, render: Callable[[str], str]) -> str:
        """Return what was fed as a reader would see it, cut to the limit; after the last piece."""
        for each in self._filters.values():
            self._take(each.flush())
        head, tail = "".join(self._head), "".join(self._tail)[-self._held_characters :]
        if self.characters <= len(head) + len(tail):
            return clip_text(render(head + tail), self._max_characters)
        head, tail = render(head), render(tail)
        return _clipped(head, tail, max(self.characters, len(head) + len(tail)), self._max_characters)

    def _take(self, text: str) -> None:
        self.characters += len(text)
        if self._head_characters < self._held_characters:
            kept = text[: self._held_characters - self._head_characters]
            self._head.append(kept)
            self._head_characters += len(kept)
            text = text[len(kept) :]
        if text:
            self._tail.append(text[-self._held_characters :])
            self._tail_characters += len(self._tail[-1])
            while self._tail_characters - len(self._tail[0]) >= self._held_characters:
                self._tail_characters -= len(self._tail.popleft())


def _clipped(head: str, tail: str, total: int, limit: int) -> str:
    """Clip a text of `total` characters that begins with `head` and ends with `tail`."""
    if total <= limit:
        return head
    reserved = len(_marker(total, total))
    if limit <= reserved:
        return _marker(total, total)[: max(0, limit)]
    room = limit - reserved
    kept_head = head[: _safe_end(head, room // 3)]
    kept_tail = tail[_safe_start(tail, max(0, len(tail) - (room - room // 3))) :]
    return kept_head + _marker(total - len(kept_head) - len(kept_tail), total) + kept_tail


def _marker(left_out: int, total: int) -> str:
    return f"\n[... {left_out} of {total} characters left out ...]\n"


def _safe_end(text: str, position: int) -> int:
    """Return the last place at or before `position` that is between two units."""
    for candidate in range(position, max(-1, position - _LONGEST_UNIT), -1):
        if not _is_inside_unit(text, candidate):
            return candidate
    return max(0, position)


def _safe_start(text: str, position: int) -> int:
    """Return the first place at or after `position` that is between two units."""
    for candidate in range(position, min(len(text), position + _LONGEST_UNIT)):
        if not _is_inside_unit(text, candidate):
            return candidate
    return position


def _is_inside_unit(text: str, position: int) -> bool:
    if not 0 < position < len(text):
        return False
    before, after = text[position - 1], text[position]
    if before == _JOINER or after == _JOINER or before + after == "\r\n" or _extends(after):
        return True
    start = text.rfind("\x1b", max(0, position - _LONGEST_UNIT), position)
    if start < 0:
        return False
    escape = _ESCAPE.match(text, start)
    return escape is not None and escape.end() > position


def _extends(character: str) -> bool:
    """Return whether a character belongs to the one before it (Unicode annex 29, simplified)."""
    number = ord(character)
    return number in _VARIATION_SELECTORS or number in _SKIN_TONES or unicodedata.combining(character) != 0
