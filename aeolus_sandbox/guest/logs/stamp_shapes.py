"""The shapes of stamps: the patterns of their dates, times of day, fractions and zones."""

import re
from typing import Final

_SECOND_US: Final = 1_000_000

ZONES: Final = {
    name: hours * 3600 * _SECOND_US
    for hours, names in (
        (0, "Z z UTC UT GMT WET"),
        (1, "CET WEST"),
        (2, "CEST EET SAST"),
        (3, "EEST MSK"),
        (8, "AWST HKT"),
        (9, "JST KST"),
        (10, "AEST"),
        (11, "AEDT"),
        (12, "NZST"),
        (13, "NZDT"),
        (-9, "AKST"),
        (-8, "AKDT"),
    )
    for name in names.split()
}
"""The names of zones that mean one thing only, with how far east of Greenwich they are, in microseconds."""

AMBIGUOUS_ZONES: Final = (
    "EST",
    "EDT",
    "CST",
    "CDT",
    "MST",
    "MDT",
    "PST",
    "PDT",
    "AST",
    "ADT",
    "BST",
    "GST",
    "IST",
)
"""The names that several countries use for zones of their own (IST: India, Israel, Ireland); such a name is part of a
stamp, but says no more than none."""

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_WEEKDAY: Final = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH: Final = f"(?P<month>{'|'.join(MONTHS)})"
_CLOCK: Final = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?!\d)"
_NAME: Final = f"(?:{'|'.join([*ZONES, *AMBIGUOUS_ZONES])})(?![A-Za-z0-9])"
_OFFSET: Final = r"[+-]\d\d(?::?\d\d)?(?!\d)"

# RFC 3339, ISO 8601, the defaults of most loggers; with slashes Go's and nginx's error log.
_ISO: Final = rf"(?P<year>\d{{4}})(?P<dash>[-/])(?P<month>\d\d)(?P=dash)(?P<day>\d\d)[Tt ]{_CLOCK}"
# Access logs (with slashes), BIND and Tomcat (with dashes), Redis and RFC 1123 (with spaces).
_DAY_FIRST: Final = (
    rf"(?:{_WEEKDAY}, )?(?P<day>\d\d?)(?P<dash>[-/ ]){_MONTH}(?P=dash)(?P<year>\d{{4}})[: ]{_CLOCK}"
)
# Syslog (RFC 3164, 4.1.2), and with a year Cisco's.
_MONTH_FIRST: Final = rf"(?:{_WEEKDAY} )?{_MONTH} {{1,2}}(?P<day>\d\d?) (?:(?P<year>\d{{4}}) )?{_CLOCK}"
# ctime(3), date(1), and Apache's error log, which has a fraction.
_YEAR_LAST: Final = rf"{_WEEKDAY} {_MONTH} {{1,2}}(?P<day>\d\d?) {_CLOCK}(?P<tail>(?:\.\d+)?(?: {_NAME})?) (?P<year>\d{{4}})(?!\d)"
# glog (0310 and 20240310) and logcat (03-10).
_DIGITS: Final = rf"(?P<year>\d{{4}})?(?P<month>\d\d)-?(?P<day>\d\d) {_CLOCK}"

YEAR_LAST: Final = re.compile(_YEAR_LAST, re.ASCII)
"""The one shape whose fraction and zone stand before its end: its group `tail`."""
_BY_DIGIT: Final = tuple(re.compile(shape, re.ASCII) for shape in (_ISO, _DAY_FIRST, _DIGITS))
_BY_LETTER: Final = (YEAR_LAST, *(re.compile(shape, re.ASCII) for shape in (_MONTH_FIRST, _DAY_FIRST)))

TAIL: Final = re.compile(rf"(?!\d)(?:[.,](\d+))?(?: ?({_NAME}|{_OFFSET})(?: {_NAME})?)?", re.ASCII)
"""What follows the time of day: a fraction and a zone (Go writes both its offset and its name), or nothing."""

NUMBER: Final = re.compile(r"[+-]?\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
"""A count as text."""


def begin(line: str, position: int) -> re.Match[str] | None:
    """Return the date and time of day that begin at a position, with groups for their parts; `year` may be None."""
    for pattern in _BY_DIGIT if line[position : position + 1].isdigit() else _BY_LETTER:
        match = pattern.match(line, position)
        if match is not None:
            return match
    return None


def offset_us(zone: str) -> int | None:
    """Return how far east of Greenwich a zone of `TAIL` is, in microseconds; None when it is none (RFC 3339, 5.6)."""
    if zone in ZONES:
        return ZONES[zone]
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or "0")
    if hours > 23 or minutes > 59:
        return None
    return (hours * 60 + minutes) * 60 * (-_SECOND_US if zone[0] == "-" else _SECOND_US)
