"""Stamps: the time that a line says it was written at, as microseconds since 1970."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeVar

from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.lines import LineFlag
from aeolus_sandbox.guest.logs.stamp_shapes import (
    AMBIGUOUS_ZONES,
    MONTHS,
    NUMBER,
    TAIL,
    YEAR_LAST,
    begin,
    offset_us,
)

Stamp = tuple[int | None, str | None, int]
"""Microseconds since 1970 in UTC (None: not a time), the zone (see `Parsed.zone`), and `LineFlag`s."""

_Found = tuple[int, int | None, str | None, int]  # where a stamp ends, and the stamp
_Moment = tuple[
    int, int
]  # a date and time of day as microseconds since 1970: read as UTC, and in the assumed zone
_Tail = tuple[
    int, int, str, int
]  # which of a moment's two it needs, what is to be added (us), the zone, and flags
_Value = TypeVar("_Value")

BAD_STAMP: Final[Stamp] = (None, None, int(LineFlag.BAD_TIME))
"""What becomes of a stamp that is none."""

_ASSUMED: Final = int(LineFlag.ZONE_ASSUMED)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ISO_LENGTH: Final = len("2024-03-10T09:15:02")
_SYSLOG_LENGTH: Final = len("Mar 10 09:15:02")
_LONGEST: Final = 64
_MOST_KNOWN: Final = 4096

# Years outside are placeholders (Go's zero time is in year 1, .NET's greatest in 9999), and these keep every time, in
# whatever zone, one that `datetime` can hold.
_YEARS: Final = range(1900, 9999)


class Stamps:
    """Reads the stamps of one file, and remembers those it has read: neighbouring lines share theirs.

    A stamp without a zone is taken to be in the context's, which must not change. Where that zone's clock is set back,
    an hour comes twice, and its first is meant; where it is set forward, an hour is left out, and a stamp within it is
    read as if the clock had not been changed yet (`fold=0` of PEP 495).
    A leap second (`:60`) is the next second, as Unix time has no other for it.
    """

    def __init__(self, context: ParseContext) -> None:
        self._context = context
        self._moments: dict[str, _Moment] = {}
        self._tails: dict[str, _Tail] = {}
        self._texts: dict[str, Stamp] = {}
        self._reference = context.reference
        self._yearless: dict[str, _Moment] = {}

    def parse(self, text: str) -> Stamp:
        """Return what a text that is nothing but a stamp says; a number is read as `number` does."""
        moment = self._moments.get(text[:_ISO_LENGTH])
        if moment is not None:
            rest = text[_ISO_LENGTH:]
            tail = self._tails.get(rest) or self._tail(TAIL.fullmatch(rest))
            if tail is not None:
                which, added_us, zone, flags = tail
                return moment[which] + added_us, zone, flags
        if self._context.reference is not self._reference:
            self._forget_years()
        known = self._texts.get(text)
        return known if known is not None else self._read(text)

    def at_start(self, line: str, position: int = 0) -> tuple[int, int | None, str | None, int] | None:
        """Return where the stamp that begins at a position ends, and what it says as `parse` does; None: none begins.

        What has the shape of a stamp but is no time (a thirteenth month) is one, with `BAD_TIME`.
        """
        moment = self._moments.get(line[position : position + _ISO_LENGTH])
        if moment is not None:
            return self._with_tail(moment, TAIL.match(line, position + _ISO_LENGTH))
        if self._context.reference is not self._reference:
            self._forget_years()
        moment = self._yearless.get(line[position : position + _SYSLOG_LENGTH])
        if moment is not None:
            return self._with_tail(moment, TAIL.match(line, position + _SYSLOG_LENGTH))
        match = begin(line, position)
        return None if match is None else self._whole(match)

    def number(self, value: float | str) -> Stamp:
        """Return what a count since 1970 says, of seconds, milliseconds, microseconds or nanoseconds by its magnitude.

        Seconds are taken from 1973 to 5138; what is less is no stamp but a duration or a placeholder.
        The zone is None: such a count is in UTC by its definition.
        """
        if type(value) is int and 10**11 <= value < 10**14:
            return value * 1000, None, 0  # milliseconds, which most loggers write, without further ado
        if not isinstance(value, str):
            return _counted(value)
        return _counted(Decimal(value)) if NUMBER.fullmatch(value) is not None else BAD_STAMP

    def _read(self, text: str) -> Stamp:
        stripped = text.strip()
        found = self.at_start(stripped)
        if found is None:
            return self.number(stripped)
        return _remember(self._texts, text, found[1:]) if found[0] == len(stripped) else BAD_STAMP

    def _forget_years(self) -> None:
        """Forget what rests on the reference: the moments without a year, and the texts that may be of such."""
        self._reference = self._context.reference
        self._yearless.clear()
        self._texts.clear()

    def _whole(self, match: re.Match[str]) -> _Found | None:
        """Return what `at_start` does, of a stamp whose date and time of day have been found."""
        moment = self._moment(match)
        if match.re is not YEAR_LAST:
            return self._with_tail(moment, TAIL.match(match.string, match.end()))
        found = self._with_tail(moment, TAIL.match(match["tail"]))
        return None if found is None else (match.end(), *found[1:])

    def _with_tail(self, moment: _Moment | None, match: re.Match[str] | None) -> _Found | None:
        if match is None:
            return None
        tail = self._tails.get(match[0]) or self._tail(match)
        if moment is None or tail is None:
            return (match.end(), *BAD_STAMP)
        which, added_us, zone, flags = tail
        return match.end(), moment[which] + added_us, zone, flags

    def _tail(self, match: re.Match[str] | None) -> _Tail | None:
        """Return what a fraction and a zone add; None when they are none, or no clock on earth is that far off."""
        if match is None:
            return None
        fraction, zone = match.groups()
        added_us = int((fraction or "0")[:6].ljust(6, "0"))
        if zone is None or zone in AMBIGUOUS_ZONES:
            return _remember(self._tails, match[0], (1, added_us, self._context.zone_name, _ASSUMED))
        east_us = offset_us(zone)
        return None if east_us is None else _remember(self._tails, match[0], (0, added_us - east_us, zone, 0))

    def _moment(self, match: re.Match[str]) -> _Moment | None:
        if match["year"] is None:
            return self._nearest_moment(match)
        known = self._moments.get(match[0])
        if known is not None:
            return known
        moment = self._moment_in(int(match["year"]), match)
        return None if moment is None else _remember(self._moments, match[0], moment)

    def _nearest_moment(self, match: re.Match[str]) -> _Moment | None:
        """Return a moment without a year in the year that brings it closest to the context's reference."""
        known = self._yearless.get(match[0])
        if known is not None:
            return known
        span = 8 if match["day"] == "29" else 1  # the years between two 29 Februaries, at most
        found = [self._moment_in(self._reference.year + years, match) for years in range(-span, span + 1)]
        moments = [moment for moment in found if moment is not None]
        if not moments:
            return None
        reference_us = (self._reference - _EPOCH) // _MICROSECOND
        nearest = min(moments, key=lambda moment: abs(moment[1] - reference_us))
        return _remember(self._yearless, match[0], nearest)

    def _moment_in(self, year: int, match: re.Match[str]) -> _Moment | None:
        month, second = match["month"], int(match["second"])
        if year not in _YEARS or second > 60:
            return None
        number = int(month) if month.isdigit() else MONTHS.index(month) + 1
        try:
            day = datetime(
                year, number, int(match["day"]), int(match["hour"]), int(match["minute"]), tzinfo=UTC
            )
        except ValueError:
            return None
        zoned = day.replace(second=min(second, 59), tzinfo=self._context.zone)
        utc_us = (day - _EPOCH) // _MICROSECOND + second * 1_000_000
        return utc_us, utc_us - (zoned.utcoffset() or timedelta()) // _MICROSECOND


def _counted(value: float | Decimal) -> Stamp:
    if not 10**8 <= value < 10**20:
        return BAD_STAMP
    if value < 10**11:
        value *= 1_000_000
    elif value < 10**14:
        value *= 1000
    elif value >= 10**17:
        value //= 1000
    return (round(value) if isinstance(value, float) else int(value)), None, 0


def _remember(known: dict[str, _Value], text: str, value: _Value) -> _Value:
    if len(text) <= _LONGEST:
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known[text] = value
    return value
