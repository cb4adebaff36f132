"""Lines of whatever format: decided for each line, so that a file may mix them.

What a line begins with leaves few formats to try, and of those, the one of the last line is tried first: in a file of
one format, each line costs one attempt. The strict formats come before the lenient ones, which would take their lines:
access lines and syslog are told by a whole header, while plain text is told by a stamp alone.
"""

import re
from typing import Final

from aeolus_sandbox.guest.logs.formats.access import AccessLines
from aeolus_sandbox.guest.logs.formats.base import LineParser, ParseContext
from aeolus_sandbox.guest.logs.formats.containers import CriLines, DockerLines
from aeolus_sandbox.guest.logs.formats.json_lines import JsonLines
from aeolus_sandbox.guest.logs.formats.logfmt import KeyValueLines
from aeolus_sandbox.guest.logs.formats.syslog import SyslogLines
from aeolus_sandbox.guest.logs.formats.text import TextLines
from aeolus_sandbox.guest.logs.lines import Parsed

_KEY: Final = re.compile(r"[\w.@/-]{0,128} ?=", re.ASCII)

# By what a line begins with, the formats that it can have, the strictest first. What is indented goes on with the line
# before it.
_ANY: Final = ("access", "text", "syslog", "json")
_WORDS: Final = ("access", "text")
_PAIRS: Final = ("structured", "access", "text")
_DATED: Final = ("syslog", "access", "text")
_BY_FIRST: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys('0123456789-"', _ANY),
    "{": ("json", "text"),
    "[": ("text", "json"),
    "<": ("syslog", "text"),
    "*": ("syslog",),
    " ": (),
    "\t": (),
    "": (),
}
_MONTHS: Final = frozenset(
    ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
)
_JSON_WORDS: Final = frozenset(("null", "true", "false"))


class AutoLines:
    """Lines of any of the other formats, alone or wrapped by a container's engine; others are None.

    The lines of a stack trace that follow its first are None too.
    """

    def __init__(self, context: ParseContext) -> None:
        # What is wrapped is not unwrapped again: a hostile line could be wrapped a thousand times.
        self._plain = _UnwrappedLines(context)
        inner = _UnwrappedLines(context)
        self._docker = DockerLines(context, inner)
        self._cri = CriLines(context, inner)

    @property
    def format(self) -> str | None:
        """The format of the last line that had one and was not wrapped: `json`, `access`, `syslog`, `text`, `structured`.

        None: no line has had one yet.
        """
        return self._plain.format

    def parse(self, line: str) -> Parsed | None:
        """Return what the line holds by the first format that takes it, or None when none does."""
        if line.startswith('{"log":'):
            return self._docker.parse(line) or self._plain.parse(line)
        if " std" in line[19:45] and (parsed := self._cri.parse(line)):
            return parsed
        return self._plain.parse(line)


class _UnwrappedLines:
    """Lines that no container's engine has wrapped."""

    def __init__(self, context: ParseContext) -> None:
        self.format: str | None = None
        self._parsers: dict[str, LineParser] = {
            "json": JsonLines(context),
            "access": AccessLines(context, combined=None),
            "syslog": SyslogLines(context),
            "text": TextLines(context),
            "structured": KeyValueLines(context),
        }

    def parse(self, line: str) -> Parsed | None:
        """Return what the line holds by the first format that takes it."""
        candidates = _BY_FIRST.get(line[:1])
        if candidates is None:
            candidates = _of_word(line)
        last = self.format
        if last not in candidates or candidates is _DATED:
            return self._first(line, candidates, None, None)
        parsed = self._parsers[last].parse(line)
        if parsed and (parsed.level is not None or last != "text"):
            return parsed
        return self._first(line, candidates, last, parsed)

    def _first(
        self, line: str, candidates: tuple[str, ...], tried: str | None, stamped: Parsed | None
    ) -> Parsed | None:
        for name in candidates:
            if name == tried:
                continue
            if stamped and (name == "json" or line[10:11] != "T"):
                break  # nothing of JSON begins like a stamp, and syslog's date has a T behind it
            parsed = self._parsers[name].parse(line)
            if parsed and name == "text" and parsed.level is None:
                stamped = parsed  # unless something strict takes it: syslog may begin with the same stamp
            elif parsed:
                self.format = name
                return parsed
        return self._stamped(stamped) if stamped else None

    def _stamped(self, parsed: Parsed) -> Parsed:
        """Return a line that has a stamp and nothing else known, or what its pairs say where it has them behind it."""
        self.format = "text"
        message = parsed.message
        pairs = self._parsers["structured"].parse(message) if message and _KEY.match(message) else None
        if not pairs or not pairs.fields:
            return parsed
        if pairs.time_us is None:
            pairs.time_us, pairs.zone = parsed.time_us, parsed.zone
            pairs.flags |= parsed.flags
        return pairs


def _of_word(line: str) -> tuple[str, ...]:
    if line[:3] in _MONTHS:
        return _DATED
    if _KEY.match(line):
        return _PAIRS
    return _ANY if line.strip() in _JSON_WORDS else _WORDS
