"""JSON lines: one object a line, as most structured loggers and the collectors of container logs write them.

Only the known keys of an object are decoded, which costs about half of decoding all of it; the line itself goes on as
the fields.
"""

import json
import re
from typing import Any, Final

import msgspec

from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.levels import level_of_name, level_of_value
from aeolus_sandbox.guest.logs.lines import LineFlag, Parsed
from aeolus_sandbox.guest.logs.timestamps import BAD_STAMP, Stamp, Stamps

MAX_DEPTH: Final = 100
"""How deeply objects and arrays may be nested; a decoder's recursion must not be left to whoever writes the log."""

_MILLISECONDS: Final = range(10**11, 10**14)
"""Counts since 1970 that are of milliseconds, see `Stamps.number`."""
_SHORTEST_DEEP: Final = 2 * MAX_DEPTH  # each level is opened and closed
_LEVELS: Final = {number: level_of_value(number) for number in range(100)}
_NOT_OBJECT: Final = int(LineFlag.NOT_OBJECT | LineFlag.UNPARSED)
_TOO_DEEP: Final = int(LineFlag.TOO_DEEP | LineFlag.UNPARSED)

# A string without its end runs to the end of the line: were it no match, each quote in it would be tried anew.
_BRACKET: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_SURROGATE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)


class _Known(msgspec.Struct):
    """The keys that loggers use for level, message and time."""

    level: Any = None
    """Also pino's and bunyan's, zap's, GELF's."""
    time: Any = None
    msg: Any = None
    message: Any = None
    ts: Any = None
    timestamp: Any = None
    at_timestamp: Any = msgspec.field(default=None, name="@timestamp")
    severity: Any = None
    lvl: Any = None
    levelname: Any = None
    levelno: Any = None
    ecs_level: Any = msgspec.field(default=None, name="log.level")
    at_level: Any = msgspec.field(default=None, name="@level")
    log: Any = None
    """Of ECS an object with the level; of Docker's json-file the text."""
    short_message: Any = None
    """Of GELF."""
    event: Any = None
    error: Any = None
    err: Any = None
    text_payload: Any = msgspec.field(default=None, name="textPayload")
    at_message: Any = msgspec.field(default=None, name="@message")
    datetime: Any = None
    date: Any = None
    event_time: Any = msgspec.field(default=None, name="eventTime")
    instant: Any = None
    """Of log4j2: `{"epochSecond": ..., "nanoOfSecond": ...}`."""
    journal_priority: Any = msgspec.field(default=None, name="PRIORITY")
    journal_message: Any = msgspec.field(default=None, name="MESSAGE")
    journal_time: Any = msgspec.field(default=None, name="__REALTIME_TIMESTAMP")


_known_decoder: Final = msgspec.json.Decoder(_Known)
_decode_known: Final = _known_decoder.decode
_raw_decoder: Final = msgspec.json.Decoder(msgspec.Raw)
_raw_fields_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class JsonLines:
    """Reads lines that are JSON objects, whatever logger wrote them.

    JSON that is not an object, or nested more than `MAX_DEPTH` deep, is a flagged record; what is not JSON is none.
    """

    def __init__(self, context: ParseContext) -> None:
        self._stamps = Stamps(context)

    def parse(self, line: str) -> Parsed | None:
        """Return what a line's object holds; None when the line is not JSON."""
        try:
            if (
                len(line) > _SHORTEST_DEEP
                and line.count("{") + line.count("[") > MAX_DEPTH
                and _is_too_deep(line)
            ):
                return Parsed(fields={}, flags=_TOO_DEEP)
            known = _decode_known(line)
        except ValueError:
            return self._parse_odd(line)
        level, moment, message = known.level, known.time, known.msg
        # pino's lines, without a call more than they need: a million of them a second is no rare thing.
        if type(level) is int and type(moment) is int and type(message) is str and moment in _MILLISECONDS:
            level = _LEVELS.get(level)
            if level is not None and known.short_message is None:
                return Parsed(message, level, moment * 1000, None, None, 0, True)
        return self._record(known, None)

    def _record(self, known: _Known, fields: dict[str, Any] | None) -> Parsed:
        level = None
        value = known.level
        if type(value) is str:
            level = level_of_name(value)
        elif type(value) is int and known.short_message is None:
            level = _LEVELS.get(value)
        message = known.msg
        if type(message) is not str:
            message = _message(known)
        time_us, zone, flags = self._time(known)
        if level is None:
            level = _level(known)
        return Parsed(message, level, time_us, zone, fields, flags, fields is None)

    def _parse_odd(self, line: str) -> Parsed | None:
        """Read a line that the fast way has refused: no JSON, no object, or values that cannot be decoded."""
        text = (
            _SURROGATE.sub(lambda match: r"\ufffd" if match[1] else match[0], line) if r"\u" in line else line
        )
        try:
            fields = {key: _decoded(raw) for key, raw in _raw_fields_decoder.decode(text).items()}
            known = msgspec.convert(fields, _Known)
        except msgspec.ValidationError:
            return Parsed(fields={}, flags=_NOT_OBJECT) if _is_json(text) else None
        except ValueError:
            return None
        return self._record(known, fields)

    def _time(self, known: _Known) -> Stamp:
        """Return the first good stamp; some keys hold durations or words in some logs."""
        value = known.time
        if value is None:
            value = known.ts
        found = (None, None, 0) if value is None else self._stamp(value)
        if found[0] is not None:
            return found
        for value in (
            known.ts,
            known.timestamp,
            known.at_timestamp,
            known.datetime,
            known.date,
            known.event_time,
            known.journal_time,
            known.instant,
        ):
            if value is not None:
                found = self._stamp(value)
                if found[0] is not None:
                    return found
        return found

    def _stamp(self, value: object) -> Stamp:
        if isinstance(value, str):
            return self._stamps.parse(value)
        if isinstance(value, int | float):
            return self._stamps.number(value)
        if isinstance(value, dict):
            seconds, nanoseconds = value.get("epochSecond"), value.get("nanoOfSecond", 0)
            if isinstance(seconds, int) and isinstance(nanoseconds, int) and 0 <= nanoseconds < 10**9:
                time_us, zone, flags = self._stamps.number(seconds)
                return None if time_us is None else time_us + nanoseconds // 1000, zone, flags
        return BAD_STAMP


def _level(known: _Known) -> int | None:
    """Return the level of the first key that says one."""
    value = known.level
    if value is not None:
        level = level_of_value(
            value.get("name") if isinstance(value, dict) else value,
            "syslog" if known.short_message is not None else None,
        )
        if level is not None:
            return level
    for value in (known.severity, known.lvl, known.levelname, known.ecs_level, known.at_level):
        if value is not None:
            level = level_of_value(value)
            if level is not None:
                return level
    if known.levelno is not None:
        return level_of_value(known.levelno, "python")
    if known.journal_priority is not None:
        return level_of_value(known.journal_priority, "syslog")
    return level_of_value(known.log.get("level")) if isinstance(known.log, dict) else None


def _message(known: _Known) -> str | None:
    """Return the message of the first key that has one."""
    for value in (known.msg, known.message, known.short_message):
        if value is not None:
            return value if isinstance(value, str) else _json_text(value)
    if known.journal_message is not None:
        return _journal_text(known.journal_message)
    if isinstance(known.log, str):
        return known.log.removesuffix("\n")
    for value in (known.event, known.text_payload, known.at_message, known.error, known.err):
        if value is not None:
            inner = value.get("message", value) if isinstance(value, dict) else value
            return inner if isinstance(inner, str) else _json_text(inner)
    return None


def _journal_text(value: object) -> str:
    """Return the text of the journal's MESSAGE: an array of byte values where it is not UTF-8 (systemd, Journal JSON)."""
    if isinstance(value, list):
        try:
            return bytes(value).decode("utf-8", "replace")
        except (TypeError, ValueError):
            pass
    return value if isinstance(value, str) else _json_text(value)


def _json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _decoded(raw: msgspec.Raw) -> Any:
    """Return a value, or its text where it cannot be decoded: a number that is out of range."""
    try:
        return msgspec.json.decode(raw)
    except ValueError:
        return bytes(raw).decode()


def _is_json(line: str) -> bool:
    try:
        _raw_decoder.decode(line)
    except ValueError:
        return False
    return True


def _is_too_deep(line: str) -> bool:
    """Return whether a line that begins as JSON does is nested more than `MAX_DEPTH` deep."""
    if line.lstrip()[:1] not in ("{", "["):
        return False
    depth = 0
    for match in _BRACKET.finditer(line):
        bracket = match[0]
        if bracket in ("{", "["):
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif bracket in ("}", "]"):
            depth -= 1
    return False
