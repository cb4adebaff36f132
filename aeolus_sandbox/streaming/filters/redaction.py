"""Takes secrets out of a text: given values, and whatever looks like a well-known secret."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

import regex  # type: ignore[import-untyped]
from pydantic import ConfigDict, SecretStr, field_validator, model_validator

from aeolus_sandbox.streaming.filters.base import Filter, TextFilter
from aeolus_sandbox.streaming.filters.secret_patterns import (
    DEFAULT_SECRET_PATTERNS,
    longest_spelling,
    value_patterns,
)

_CONTEXT: Final = 256
"""How many characters before a secret a pattern may look at."""
_LONGEST: Final = 16 * 1024
"""How many characters a possible secret is waited for; also the longest value, spelled out."""
_SHORTEST_VALUE: Final = 4
_SHORTEST_BEGINNING: Final = 8
"""How much of a value gives away too much of it."""
_PATIENCE_S: Final = 0.25
"""Processor time for one search for a pattern that somebody else wrote, in at most `_LONGEST` characters."""

_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
"""The parts of a pattern that are told apart here: escapes, classes, and the dollar sign."""
_ASSERTIONS: Final = frozenset({r"\b", r"\B", r"\m", r"\M", r"\Z", "$"})
_MORE: Final = r"(?=[^\n]|\n[\s\S])"  # a `$` also holds before a line feed at the end
_LOOKS_AHEAD: Final = re.compile(r"\(\?[=!]")
_KEEP: Final = r"\K"


class Redact(Filter):
    r"""Takes out secrets: given values, and what matches a pattern.

    Values are also found JSON-escaped, percent-encoded and inside base64, and with either line end. A pattern is in
    the syntax of the `regex` library; what it matches up to `\K` only tells that a secret follows, and stays. Matches
    that overlap are taken out as one. Only what may be the beginning of a secret is held back, until it is known:
    at most 16,384 characters, after which it is taken out as it stands.

    A pattern sees at most 256 characters before a secret. One that takes too long on some text hides all that follows.
    Put `CleanControls` before this filter: a colour in the middle of a secret hides it.

    Raises:
        ValueError: A value is shorter than 4 characters or too long, or a pattern does not compile or matches the
            empty text.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    values: tuple[SecretStr, ...] = ()
    """The secrets themselves; line ends around them do not count."""
    patterns: tuple[str, ...] = DEFAULT_SECRET_PATTERNS
    """What other secrets look like."""
    replacement: str = "[redacted]"
    """What stands in the place of a secret."""

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for value in map(_bare, values):
            if len(value) < _SHORTEST_VALUE:
                msg = f"a secret of less than {_SHORTEST_VALUE} characters is part of ordinary text"
                raise ValueError(msg)
            if longest_spelling(value) > _LONGEST:
                msg = f"a secret may have at most {_LONGEST} characters when it is spelled out"
                raise ValueError(msg)
            if not value.strip("*"):
                msg = "a secret of nothing but asterisks: give the value itself, not a dump of the configuration"
                raise ValueError(msg)
        return values

    @field_validator("values", mode="before")
    @classmethod
    def _hide_values(cls, values: object) -> object:
        """Hide the values first: an error carries its input."""
        if isinstance(values, str):
            return SecretStr(values)
        if isinstance(values, list | tuple | set | frozenset):
            return tuple(SecretStr(each) if isinstance(each, str) else each for each in values)
        return values

    @field_validator("patterns")
    @classmethod
    def _check_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                regex.compile(pattern, cache_pattern=False)  # by itself: what it is put into might repair it
                shape = _Shape.compiled(pattern)
            except regex.error as error:
                msg = f"the pattern {pattern!r} does not compile: {error}"
                raise ValueError(msg) from error
            if shape.whole.search("") or shape.whole.flags & regex.REVERSE:
                msg = f"the pattern {pattern!r} matches the empty text or backwards"
                raise ValueError(msg)
            if _LOOKS_AHEAD.search(_split_at_keep(pattern)[0]):
                msg = f"the pattern {pattern!r} looks ahead before \\K: say it behind it"
                raise ValueError(msg)
        return patterns

    @model_validator(mode="after")
    def _compile(self) -> Self:
        """Compile at once: it takes milliseconds, which no running session should wait for."""
        _shapes(self.values, self.patterns)
        return self

    def start(self) -> TextFilter:
        """Return the filter at the beginning of a text."""
        return _Redactor(_shapes(self.values, self.patterns), self.replacement)


@dataclass(frozen=True, slots=True, repr=False)
class _Shape:
    """What one kind of secret looks like."""

    sign: "regex.Pattern[str] | None"
    """What comes before the secret: looked for first, because that is quick, and it is seldom there."""
    whole: "regex.Pattern[str]"
    """The secret, after its sign."""
    unsettled: "regex.Pattern[str]"
    """Matches never; its partial match is the first place where more text could change whether and how far `whole`
    matches. A partial match of `whole` itself would not do: any complete match comes first, also one behind it."""
    timeout_s: float | None
    longest_value: int | None
    """The longest match in characters, where it is a value."""

    @classmethod
    def compiled(cls, pattern: str, *, longest_value: int | None = None) -> Self:
        """Compile a pattern.

        Raises:
            regex.error: It is not one.
        """
        sign, secret = _split_at_keep(pattern)
        behind = f"(?<={sign})" if sign else ""
        whole = regex.compile(f"{behind}(?:{secret})", cache_pattern=False)
        return cls(
            sign=regex.compile(sign, whole.flags, cache_pattern=False) if sign else None,
            whole=whole,
            unsettled=regex.compile(rf"{behind}(?:{_touching(secret)})(?!)", cache_pattern=False),
            timeout_s=None if longest_value or pattern in DEFAULT_SECRET_PATTERNS else _PATIENCE_S,
            longest_value=longest_value,
        )

    def first(self, text: str, start: int, end: int) -> int:
        """Return a place, at or after `start`, before which no secret begins in `text[start:end]`."""
        if self.sign is None:
            return start
        found = self.sign.search(text, max(0, start - _CONTEXT), end, timeout=self.timeout_s)
        return end if found is None else max(start, found.start())

    def settled(self, text: str, start: int, end: int) -> int:
        """Return up to where it is settled which secrets begin in `text[start:end]`, whatever comes at `end`."""
        if self.longest_value:
            start = max(start, end - self.longest_value)
        found = self.unsettled.search(text, start, end, partial=True, timeout=self.timeout_s)
        return end if found is None else found.start()

    def matches(self, text: str, start: int, stop: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield where secrets are in `text[start:end]` that begin before `stop`."""
        while start < stop and (found := self.whole.search(text, start, end, timeout=self.timeout_s)):
            if found.start() >= stop:
                return
            if found.end() > found.start():
                yield found.span()
            start = max(found.end(), found.start() + 1)

    def beginning(self, text: str, start: int) -> Iterator[tuple[int, int]]:
        """Yield where the end of the text is a value that was cut off."""
        found = self.whole.search(text, start, partial=True) if self.longest_value else None
        if found is not None and found.partial and found.end() - found.start() >= _SHORTEST_BEGINNING:
            yield found.span()


class _Scanner:
    """One shape's way through a text that grows."""

    def __init__(self, shape: _Shape) -> None:
        self._shape = shape
        self.at = 0
        """It is settled which secrets begin before."""

    def scan(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the secrets that more text cannot change.

        What is found at a place depends on no more than the `_LONGEST` characters from there on, however they came.
        """
        while self.at < len(text):
            end = min(len(text), self.at + _LONGEST)
            first = self._shape.first(text, self.at, end)
            settled = self._shape.settled(text, first, end) if first < end else end
            if settled > self.at:
                found = list(self._shape.matches(text, first, settled, end))
                yield from found
                self.at = max([settled, *(stop for _, stop in found[-1:])])
            elif end - self.at == _LONGEST:
                yield self.at, end  # Boundary: what may be a secret and does not end is taken for one
                self.at = end
            else:
                return

    def finish(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the secrets in the rest of the text, which has ended."""
        for start, stop in self._shape.matches(text, self.at, len(text), len(text)):
            yield start, stop
            self.at = stop
        yield from self._shape.beginning(text, self.at)


class _Redactor:
    """Several shapes' secrets taken out of one text."""

    def __init__(self, shapes: Sequence[_Shape], replacement: str) -> None:
        self._scanners = [_Scanner(shape) for shape in shapes]
        self._replacement = replacement
        self._text = ""
        """What is held, after some of what has passed, which patterns may look back at."""
        self._done = 0
        """What is before has passed, or was taken out."""
        self._found: list[tuple[int, int]] = []
        self._is_blind = False

    def feed(self, text: str) -> str:
        if self._is_blind or not text:
            return ""
        self._text += text
        try:
            for scanner in self._scanners:
                self._found.extend(scanner.scan(self._text))
        except TimeoutError:
            return self._go_blind()
        settled = min((scanner.at for scanner in self._scanners), default=len(self._text))
        passed = self._pass(settled)
        self._forget(settled - _CONTEXT)
        return passed

    def flush(self) -> str:
        if self._is_blind:
            return ""
        try:
            for scanner in self._scanners:
                self._found.extend(scanner.finish(self._text))
        except TimeoutError:
            return self._go_blind()
        return self._pass(len(self._text))

    def _go_blind(self) -> str:
        # Boundary: nothing passes that was not searched, and a text that stalls one search may stall the next.
        self._is_blind = True
        self._text = ""
        return self._replacement

    def _pass(self, settled: int) -> str:
        """Return the text up to a place before which all secrets are known, without them."""
        passed: list[str] = []
        self._found.sort()
        known = [span for span in self._found if span[0] < settled]
        self._found = self._found[len(known) :]
        for start, stop in known:
            if start >= self._done:
                passed += (self._text[self._done : start], self._replacement)
            self._done = max(self._done, stop)
        passed.append(self._text[self._done : settled])
        self._done = max(self._done, settled)
        return "".join(passed)

    def _forget(self, characters: int) -> None:
        if characters <= 0:
            return
        self._text = self._text[characters:]
        self._done -= characters
        self._found = [(start - characters, stop - characters) for start, stop in self._found]
        for scanner in self._scanners:
            scanner.at -= characters


@lru_cache(maxsize=32)
def _shapes(values: tuple[SecretStr, ...], patterns: tuple[str, ...]) -> tuple[_Shape, ...]:
    """Return the shapes of a configuration: compiling takes long, and every text starts anew."""
    given = [
        _Shape.compiled(pattern, longest_value=longest_spelling(value))
        for value in map(_bare, values)
        for pattern in value_patterns(value)
    ]
    return (*given, *map(_Shape.compiled, patterns))


def _bare(value: SecretStr) -> str:
    return value.get_secret_value().replace("\r\n", "\n").strip("\n")


def _split_at_keep(pattern: str) -> tuple[str, str]:
    for token in _TOKEN.finditer(pattern):
        if token[0] == _KEEP:
            return pattern[: token.start()], pattern[token.end() :]
    return "", pattern


def _touching(pattern: str) -> str:
    """Return a pattern whose assertions ask for more text at its end, as lookaheads do: it may prove them wrong."""
    return _TOKEN.sub(lambda m: f"(?:{_MORE}{m[0]})" if m[0] in _ASSERTIONS else m[0], pattern)
