"""Which lines are passed on: the filter of a `Tail`, at work."""

from typing import Any, Final

import msgspec

from aeolus_sandbox.guest.logs.fields import fields_of
from aeolus_sandbox.guest.logs.frames import Tail
from aeolus_sandbox.guest.logs.lines import Parsed
from aeolus_sandbox.guest.logs.patterns import compile_pattern

_encode: Final = msgspec.json.encode


class Selection:
    """The conditions that a line must meet, all of them.

    A line whose time is not known meets every condition of time: what continues an event must not get lost.
    """

    def __init__(self, request: Tail) -> None:
        self._pattern = None if request.pattern is None else compile_pattern(request.pattern)
        self._exclude = None if request.exclude is None else compile_pattern(request.exclude)
        self.level = request.level
        """The least level; None: any."""
        self._keeps_unknown_level = request.keeps_unknown_level
        self._since_us = request.since_us
        self._until_us = request.until_us
        self._equals = tuple((name, name.split("."), text) for name, text in request.equals.items())
        self.looks_at_text = self._pattern is not None or self._exclude is not None
        """Whether `takes_text` can say no."""
        self.looks_inside = bool(
            self.level is not None or self._equals or self._since_us is not None or self._until_us is not None
        )
        """Whether `takes` can say no."""
        self.looks_at_levels_alone = not (
            self.looks_at_text or self._equals or self._since_us is not None or self._until_us is not None
        )
        """Whether a line that has a level needs nothing but that to be taken."""

    def takes_text(self, line: bytes) -> bool:
        """Return whether a line meets the conditions on its text, in time that is linear in its length."""
        if self._pattern is not None and not self._pattern.search(line):
            return False
        return self._exclude is None or not self._exclude.search(line)

    def takes(self, parsed: Parsed, text: str) -> bool:
        """Return whether a line meets the conditions on what was made of it."""
        if self.level is not None:
            level = parsed.level
            if not self._keeps_unknown_level if level is None else level < self.level:
                return False
        time_us = parsed.time_us
        if time_us is not None and (
            (self._since_us is not None and time_us < self._since_us)
            or (self._until_us is not None and time_us >= self._until_us)
        ):
            return False
        return not self._equals or self._has_equal_fields(parsed, text)

    def _has_equal_fields(self, parsed: Parsed, text: str) -> bool:
        fields = fields_of(parsed, text)
        return all(_as_text(_reach(fields, name, steps)) == text for name, steps, text in self._equals)


def _reach(fields: dict[str, Any], name: str, steps: list[str]) -> Any:
    """Return a field by its own name, dots included, or else step by step; None where there is none."""
    if name in fields:
        return fields[name]
    found: Any = fields
    for step in steps:
        if not isinstance(found, dict):
            return None
        found = found.get(step)
    return found


def _as_text(value: Any) -> str | None:
    """Return what a field is compared as: a text as it is, everything else as its JSON."""
    if value is None or isinstance(value, str):
        return value
    return _encode(value).decode()
