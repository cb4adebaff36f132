"""Structured text: `key=value` pairs, as logfmt and the loggers like it write them."""

import re
from typing import Any, Final

from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.levels import level_of_value
from aeolus_sandbox.guest.logs.lines import LineFlag, Parsed
from aeolus_sandbox.guest.logs.timestamps import Stamp, Stamps

_UNPARSED: Final = int(LineFlag.UNPARSED)

_LEVEL_KEYS: Final = ("level", "lvl", "severity", "levelname", "loglevel", "log.level", "@level")
_MESSAGE_KEYS: Final = ("msg", "message", "event", "error", "err")
_TIME_KEYS: Final = ("time", "ts", "timestamp", "t", "@timestamp", "datetime", "date")

# Every match goes on from the one before, and no part of one is tried twice: a quote without its end takes the rest of
# the line (its closing quote is then empty), and a single one without its end is an ordinary character.
_PAIR: Final = re.compile(
    r"""
    \s*+ ([^\s=]*+)                                          # key
    (?: ( [ ]=[ ] | = )                                      # equals
        (?: ( "[^"\\]*+ (?: \\.?[^"\\]*+ )*+ ) ( "? )        # a quoted value but for its closing quote
            | ( '[^']*+' )
            | ( \S*+ )
        )
    )?+
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", "'": "'"}


class KeyValueLines:
    r"""Reads lines of `key=value` pairs; the values are texts.

    A value in double quotes may have the escapes of JSON and Go; in single quotes it has none; one without quotes ends
    at a space and is as it stands. `key=` is the empty text, a key alone is None, `key = value` is `key=value`, a value
    without a key is left out, and of a key that comes twice the last value counts.
    A line whose quote has no end is a flagged record without fields.
    """

    def __init__(self, context: ParseContext) -> None:
        self._stamps = Stamps(context)

    def parse(self, line: str) -> Parsed | None:
        """Return what a line's pairs say; None when it has none."""
        fields: dict[str, Any] = {}
        has_pairs = False
        for key, equals, quoted, closing, single, plain in _PAIR.findall(line):
            if quoted and not closing:
                return Parsed(fields={}, flags=_UNPARSED)
            if not key:
                continue
            if not equals:
                fields[key] = None
                continue
            has_pairs = True
            if quoted:
                value = quoted[1:]
                fields[key] = _ESCAPE.sub(_unescaped, value) if "\\" in value else value
            else:
                fields[key] = single[1:-1] if single else plain
        return self._record(fields) if has_pairs else None

    def _record(self, fields: dict[str, Any]) -> Parsed:
        message = level = None
        for key in _MESSAGE_KEYS:
            message = fields.get(key)
            if message is not None:
                break
        for key in _LEVEL_KEYS:
            level = level_of_value(fields.get(key))
            if level is not None:
                break
        time_us, zone, flags = self._time(fields)
        return Parsed(message, level, time_us, zone, fields, flags)

    def _time(self, fields: dict[str, Any]) -> Stamp:
        """Return the first good stamp; some keys hold durations in some logs."""
        found: Stamp = (None, None, 0)
        for key in _TIME_KEYS:
            value = fields.get(key)
            if value is not None:
                found = self._stamps.parse(value)
                if found[0] is not None:
                    break
        return found


def _unescaped(match: re.Match[str]) -> str:
    """Return what an escape stands for; an unknown one stands for itself, half a pair of surrogates for U+FFFD."""
    digits, character = match.groups()
    if digits is None:
        return _ESCAPED.get(character, match[0])
    code = int(digits, 16)
    return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
