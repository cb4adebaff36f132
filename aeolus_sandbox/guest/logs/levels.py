"""The names and numbers that loggers have for their levels, on the one scale of `LEVELS`."""

from collections.abc import Iterator
from typing import Final, Literal

from aeolus_sandbox.guest.logs.lines import LEVELS

Scale = Literal["pino", "python", "syslog"]
"""Whose numbers they are: pino's and bunyan's (10 trace to 60 fatal), Python's `levelno` (10 debug to 50 critical), or
the severities of syslog and GELF (7 debug to 0 emergency; RFC 5424, 6.2.1)."""

# By loggers: syslog.h; Python's logging and loguru; log4j, logback and java.util.logging; zap, logrus and zerolog; glog;
# pino, bunyan and winston; Serilog and Microsoft.Extensions.Logging; PostgreSQL (LOG and what explains an entry: its
# DETAIL, HINT, CONTEXT, QUERY, STATEMENT); MongoDB (D1 to D5); MySQL (Note).
# What a logger has above its error (SEVERE excepted, which is the JUL's error) is critical: fatal, panic, dpanic.
# Not here, because they say nothing: ANY and UNKNOWN of Ruby, DEFAULT of Google Cloud, NOTSET, ALL, OFF.
_NAMES: Final = {
    "trace": "t trc trce trace finer finest silly v vrb verbose",
    "debug": "d dbg dbug deb debu debug fine config d1 d2 d3 d4 d5 debug1 debug2 debug3 debug4 debug5",
    "info": "i inf info information informational log note success detail hint context query statement location",
    "notice": "n ntc not notice",
    "warning": "w wrn warn warning",
    "error": "e err erro error fail severe",
    "critical": "c crt crit critical f ftl fata fatal dpanic p pnc pani panic",
    "alert": "alrt alert",
    "emergency": "emrg emerg emergency",
}


def spellings() -> Iterator[tuple[str, int]]:
    """Yield the names of levels, in the cases that are usual, and what they are as an index into `LEVELS`."""
    for index, level in enumerate(LEVELS):
        for name in _NAMES[level].split():
            for spelling in (name, name.upper(), name.title()):
                yield spelling, index


_BY_NAME: Final = dict(spellings())
_LONGEST_NAME: Final = max(map(len, _BY_NAME))

_PINO: Final = tuple(map(LEVELS.index, ("trace", "trace", "debug", "info", "warning", "error", "critical")))
_PYTHON: Final = tuple(map(LEVELS.index, ("trace", "debug", "info", "warning", "error", "critical")))
_SYSLOG: Final = tuple(reversed(range(LEVELS.index("debug"), len(LEVELS))))
_HIGHEST_NUMBER: Final = 99


def level_of_name(name: str) -> int | None:
    """Return the index into `LEVELS` of a level's name, in whatever case; None when no usual logger has such a name."""
    level = _BY_NAME.get(name)
    if (
        level is None and 0 < len(name) <= _LONGEST_NAME + 2
    ):  # room for spaces around it: some loggers fill up a column
        return _BY_NAME.get(name.strip().lower())
    return level


def level_of_number(value: int, scale: Scale) -> int | None:
    """Return the index into `LEVELS` of a level's number; None when the scale has no such number.

    A number between two steps of pino or Python is the step below it (pino's 35 is info), as those loggers compare.
    """
    if scale == "syslog":
        return _SYSLOG[value] if 0 <= value < len(_SYSLOG) else None
    if not 0 < value <= _HIGHEST_NUMBER:
        return None
    steps = _PYTHON if scale == "python" else _PINO
    return steps[min(value // 10, len(steps) - 1)]


def scale_of(value: int) -> Scale:
    """Return whose number it is when nothing else tells, as in `{"level": 3}` and `{"level": 30}`.

    Syslog's severities end at 7, and pino's steps begin at 10; so one digit up to 7 is a severity (GELF and most PHP
    and Perl loggers write it in `level`), and everything above is pino's.
    """
    return "syslog" if 0 <= value < len(_SYSLOG) else "pino"


def level_of_value(value: object, scale: Scale | None = None) -> int | None:
    """Return the index into `LEVELS` of what a field holds: a name, a number, or a number as text; None for others.

    Args:
        value: What the field holds, of whatever type.
        scale: Whose numbers they are; None: see `scale_of`.
    """
    if isinstance(value, str):
        level = level_of_name(value)
        if level is not None or not (len(value) <= 2 and value.isascii() and value.isdigit()):
            return level
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return level_of_number(value, scale or scale_of(value))
    return None
