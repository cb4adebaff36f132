"""The formats of log lines, by their names."""

from collections.abc import Callable
from typing import Final

from aeolus_sandbox.guest.logs.formats.access import AccessLines
from aeolus_sandbox.guest.logs.formats.auto import AutoLines
from aeolus_sandbox.guest.logs.formats.base import LineParser, ParseContext
from aeolus_sandbox.guest.logs.formats.json_lines import JsonLines
from aeolus_sandbox.guest.logs.formats.logfmt import KeyValueLines
from aeolus_sandbox.guest.logs.formats.syslog import SyslogLines
from aeolus_sandbox.guest.logs.lines import Parsed

FORMATS: Final = ("auto", "clf", "combined", "json", "raw", "structured", "syslog")
"""The names of the formats, in alphabetical order."""


class RawLines:
    """Lines of which nothing is to be made."""

    def parse(self, line: str) -> Parsed:
        """Return an empty result: the message of a line is the line."""
        return Parsed()


_MAKERS: Final[dict[str, Callable[[ParseContext], LineParser]]] = {
    "auto": AutoLines,
    "clf": lambda context: AccessLines(context, combined=False),
    "combined": lambda context: AccessLines(context, combined=True),
    "json": JsonLines,
    "raw": lambda _: RawLines(),
    "structured": KeyValueLines,
    "syslog": SyslogLines,
}


def parser_for(format: str, context: ParseContext) -> LineParser:  # noqa: A002 — the word of the frames
    """Return a parser for the lines of one file.

    Raises:
        ValueError: There is no such format.
    """
    if format not in _MAKERS:
        msg = f"no format {format!r}: one of {', '.join(FORMATS)}"
        raise ValueError(msg)
    return _MAKERS[format](context)
