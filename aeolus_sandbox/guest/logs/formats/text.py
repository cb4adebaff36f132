"""Plain lines, as the usual loggers write them: perhaps a stamp, perhaps a level, and the message."""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.formats.heads import Head, env_logger_at, head_at
from aeolus_sandbox.guest.logs.formats.json_lines import MAX_DEPTH
from aeolus_sandbox.guest.logs.formats.servers import glog_line, redis_line, ruby_line, server_head
from aeolus_sandbox.guest.logs.lines import Parsed
from aeolus_sandbox.guest.logs.timestamps import Stamps

_COLOUR: Final = re.compile(r"\x1b\[[\d;]{0,32}m")
_CALLER: Final = re.compile(r" ?([\w./-]{1,200}\.go:\d{1,7}): ", re.ASCII)
_SPACES: Final = re.compile(r"[\]\s]{0,40}")

_object_decoder: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class TextLines:
    """Lines with a stamp, with a level in a place where loggers put one, or with both; others are not of this format.

    Words of the message are never a level. Fields are what is clear of it: `logger`, `thread`, `pid`, `client`, `caller`
    and what the lines of some servers have of their own; the object at the end of a line of zap is `context`.
    """

    def __init__(self, context: ParseContext) -> None:
        self._stamps = Stamps(context)

    def parse(self, line: str) -> Parsed | None:
        """Return what the line holds, or None when it has neither a stamp nor a level."""
        if "\x1b" in line:
            line = _COLOUR.sub("", line)
        first = line[:1]
        own = _own_shape(line, first)
        if own and (parsed := own(line, self._stamps)):
            return parsed
        bracket = 1 if first == "[" else 0
        stamp = self._stamps.at_start(line, bracket)
        return self._stamped(line, bracket, stamp) if stamp else _unstamped(line)

    def _stamped(self, line: str, bracket: int, stamp: tuple[int, int | None, str | None, int]) -> Parsed:
        end, time_us, zone, flags = stamp
        head = server_head(line, end) or (env_logger_at(line, end) if bracket else None)
        if not head:
            after = end + bracket if line.startswith("]", end) else end
            head = head_at(line, after) or _caller_at(line, end) or Head(_message_start(line, end), None, {})
        message = line[head.end :]
        if "\t{" in message:
            message = _with_context(message, head.fields)
        return Parsed(message, head.level, time_us, zone, head.fields, flags)


def _own_shape(line: str, first: str) -> Callable[[str, Stamps], Parsed | None] | None:
    if first in _LETTERS:
        return ruby_line if line.startswith(", [", 1) else glog_line
    return redis_line if first.isdigit() and line[4:5] not in "-/" and ":" in line[1:11] else None


_LETTERS: Final = frozenset("DIWEFAU")


def _unstamped(line: str) -> Parsed | None:
    head = head_at(line, 0)
    return Parsed(line[head.end :], head.level, None, None, head.fields) if head else None


def _caller_at(line: str, position: int) -> Head | None:
    found = _CALLER.match(line, position)
    return found and Head(found.end(), None, {"caller": found[1]})


def _message_start(line: str, position: int) -> int:
    found = _SPACES.match(line, position)
    return found.end() if found else position


def _with_context(message: str, fields: dict[str, Any]) -> str:
    text, _, context = message.rpartition("\t{")
    if (
        context.count("{") + context.count("[") > MAX_DEPTH
    ):  # so it may be nested too deeply to be written again
        return message
    try:
        fields["context"] = _object_decoder.decode("{" + context)
    except ValueError:
        return message
    return text
