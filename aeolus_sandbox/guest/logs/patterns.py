"""Patterns that a caller gives: the one door to RE2, for the host that checks them and the guest that uses them.

RE2 looks for a pattern in time in proportion to the text, whatever both are, and has no look-around and no
back-references: https://github.com/google/re2/wiki/Syntax. What is left of the cost is the size of the pattern, which
is bounded here.
"""

from typing import Any, Final

import re2

MAX_PATTERN_CHARACTERS: Final = 4096
_MAX_PROGRAM_SIZE: Final = 5000
"""How many instructions a pattern may come to: with so many, the worst 64 KiB cost a quarter of a second."""
_MAX_MEMORY_BYTES: Final = 8 * 1024 * 1024
"""What RE2 may use for a pattern, most of it for the states that it has seen."""


class PatternError(ValueError):
    """A pattern cannot be used; says where its fault is."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message if position is None else f"{message}, at position {position}")
        self.position = position
        """Index of the fault's first character; the pattern's length where something is missing at its end."""


class Pattern:
    """A pattern to look for in lines."""

    __slots__ = ("_search", "text")

    def __init__(self, text: str, compiled: Any) -> None:
        self.text = text
        self._search = compiled.search

    def search(self, data: bytes) -> bool:
        """Return whether the pattern is found somewhere in the line; bytes that are not UTF-8 match nothing."""
        return self._search(data) is not None


def compile_pattern(text: str) -> Pattern:
    """Return the pattern of an RE2 expression.

    Raises:
        PatternError: It is empty, too long or too large, or no expression of RE2's.
    """
    if not text:
        msg = "an empty pattern would match everything: leave it out"
        raise PatternError(msg)
    if len(text) > MAX_PATTERN_CHARACTERS:
        msg = f"a pattern of {len(text)} characters is over the limit of {MAX_PATTERN_CHARACTERS}"
        raise PatternError(msg)
    compiled = _compiled(text)
    if compiled.programsize > _MAX_PROGRAM_SIZE:
        msg = "the pattern is too large once its repetitions are written out: use smaller ones"
        raise PatternError(msg)
    return Pattern(text, compiled)


def _compiled(text: str) -> Any:
    try:
        return re2.compile(text, _options())
    except UnicodeEncodeError as error:
        msg = "the pattern is not text: it holds a lone surrogate"
        raise PatternError(msg, error.start) from error
    except re2.error as error:
        kind, fragment = _fault(error)
        said = f"{kind}: {fragment!r}" if fragment else kind
        msg = f"not an RE2 pattern: {said}"
        raise PatternError(msg, _position(text, kind, fragment)) from error


def _options() -> Any:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY_BYTES
    options.never_capture = True
    options.log_errors = False  # they would go to stderr
    return options


def _fault(error: Exception) -> tuple[str, str]:
    """Return what kind of fault RE2 reports, and the part of the pattern that it shows for it."""
    said = error.args[0] if error.args else b""
    words = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    kind, _, fragment = words.partition(": ")
    return kind, fragment


def _position(text: str, kind: str, fragment: str) -> int | None:
    """Return where the fault is: RE2 shows a part of the pattern, which may stand in it several times."""
    if not fragment:
        return len(text) if kind.startswith("trailing") else None
    if kind.startswith("missing"):
        return len(text) if fragment == text else len(text) - len(fragment)
    end = _first_failing(text, kind)
    if kind.startswith("unexpected"):  # it shows the whole pattern
        return end - 1
    shown = _fault_of(text[:end])
    return end - len(shown[1]) if shown is not None and text[:end].endswith(shown[1]) else end - 1


def _first_failing(text: str, kind: str) -> int:
    """Return the length of the shortest beginning of the pattern with this fault: RE2 reads from left to right."""
    passing, failing = 0, len(text)
    while failing - passing > 1:
        middle = (passing + failing) // 2
        fault = _fault_of(text[:middle])
        if fault is not None and fault[0] == kind:
            failing = middle
        else:
            passing = middle
    return failing


def _fault_of(text: str) -> tuple[str, str] | None:
    try:
        re2.compile(text, _options())
    except re2.error as error:
        return _fault(error)
    return None
