"""Every shape of stamp means the instant that it says; what is no time is flagged and raises nothing."""

from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.lines import LineFlag
from aeolus_sandbox.guest.logs.timestamps import Stamps
from tests.unit.logs.linear import LIMIT_S, processor_seconds

SECOND_US = 1_000_000
MORNING_US = 1_710_062_102 * SECOND_US  # 2024-03-10T09:15:02Z
BAD = (None, None, LineFlag.BAD_TIME)


def _context(zone: str = "UTC", reference: datetime = datetime(2024, 3, 11, tzinfo=UTC)) -> ParseContext:
    return ParseContext(zone=ZoneInfo(zone), zone_name=zone, reference=reference)


def _utc_us(*parts: int) -> int:
    year, month, day, *rest = parts
    return int(datetime(year, month, day, *rest, tzinfo=UTC).timestamp()) * SECOND_US  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("text", "fraction_us", "zone"),
    [
        ("2024-03-10T09:15:02.120Z", 120_000, "Z"),
        ("2024-03-10T14:45:02.120+05:30", 120_000, "+05:30"),
        ("2024-03-10T14:45:02+0530", 0, "+0530"),
        ("2024-03-10T01:15:02-08:00", 0, "-08:00"),
        ("2024-03-10T09:15:02+00:00", 0, "+00:00"),
        ("2024-03-10 09:15:02 UTC", 0, "UTC"),
        ("2024-03-10 09:15:02 GMT", 0, "GMT"),
        ("2024-03-10 10:15:02 CET", 0, "CET"),
        ("2024-03-10 10:15:02,120 +0100", 120_000, "+0100"),
        ("2024-03-10 09:15:02.462 +00", 462_000, "+00"),
        ("2024-03-10 09:15:02.123456789 +0000 UTC", 123_456, "+0000"),
        ("2024-03-10T09:15:02.9999999Z", 999_999, "Z"),
        ("2024-03-10T09:15:02.1Z", 100_000, "Z"),
        ("10/Mar/2024:09:15:02 +0000", 0, "+0000"),
        ("10/Mar/2024:01:15:02 -0800", 0, "-0800"),
        ("Sun, 10 Mar 2024 09:15:02 GMT", 0, "GMT"),
        ("Sun Mar 10 09:15:02 UTC 2024", 0, "UTC"),
        ("1710062102", 0, None),
        ("1710062102.120", 120_000, None),
        ("1710062102120", 120_000, None),
        ("1710062102120000", 120_000, None),
        ("1710062102120000000", 120_000, None),
        ("1.71006210212e9", 120_000, None),
    ],
)
def test_a_stamp_with_a_zone_is_its_instant_and_the_zone_is_kept(
    text: str, fraction_us: int, zone: str | None
) -> None:
    stamps = Stamps(_context("America/New_York"))
    assert stamps.parse(text) == (MORNING_US + fraction_us, zone, 0)
    assert stamps.parse(text) == (MORNING_US + fraction_us, zone, 0), "and from memory"
    assert stamps.parse(f" {text} ") == (MORNING_US + fraction_us, zone, 0)


@pytest.mark.parametrize(
    ("text", "fraction_us"),
    [
        ("2024-03-10T14:45:02", 0),
        ("2024/03/10 14:45:02", 0),
        ("2024/03/10 14:45:02.120", 120_000),
        ("10-Mar-2024 14:45:02.123", 123_000),
        ("10 Mar 2024 14:45:02.123", 123_000),
        ("10/Mar/2024:14:45:02.123", 123_000),
        ("Mar 10 14:45:02", 0),
        ("Mar 10 14:45:02.5", 500_000),
        ("Mar 10 2024 14:45:02", 0),
        ("Sun Mar 10 14:45:02 2024", 0),
        ("Sun Mar 10 14:45:02.123456 2024", 123_456),
        ("0310 14:45:02.123456", 123_456),
        ("20240310 14:45:02.123456", 123_456),
        ("03-10 14:45:02.123", 123_000),
        ("2024-03-10 14:45:02 IST", 0),
    ],
)
def test_a_stamp_without_a_zone_is_in_the_configured_one_and_says_so(text: str, fraction_us: int) -> None:
    stamps = Stamps(_context("Asia/Kolkata"))
    expected = (MORNING_US + fraction_us, "Asia/Kolkata", LineFlag.ZONE_ASSUMED)
    assert stamps.parse(text) == expected
    assert stamps.parse(text) == expected, "and from memory"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "2024-13-40T99:99:99Z",
            "2024-03-10T09:15:02+99:00",
            "2024-03-10T09:15:02+05:99",
            "0",
            "-1",
            "1e400",
        ),
        *("2023-02-29T00:00:00Z", "2024-03-10T24:00:00Z", "2024-03-10T09:15:61Z", "0000-00-00T00:00:00Z"),
        *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "31/Feb/2024:00:00:00 +0000", "Feb 30 00:00:00"),
        *(
            "",
            " ",
            "Z",
            "yesterday",
            "nan",
            "inf",
            "1_710_062_102",
            "9" * 5000,
            "0.0123",
            "12ms",
            "١٧١٠٠٦٢١٠٢",
        ),
        *(
            "2024-03-10T09:15:02Zjunk",
            "2024-03-10T09:15:021Z",
            "2024-03-10T09:15:02 XYZ",
            "1e999999999",
            "-1710062102",
        ),
    ],
)
def test_what_is_no_time_is_flagged(text: str) -> None:
    stamps = Stamps(_context())
    assert stamps.parse(text) == BAD
    stamps.parse("2024-03-10T09:15:02Z")  # so that its date and time of day are remembered
    assert stamps.parse(text) == BAD


@pytest.mark.parametrize(
    "value", [0, -1, 12, 0.5, float("nan"), float("inf"), -float("inf"), 10**30, 1e300, True]
)
def test_a_number_that_is_no_time_is_flagged(value: float) -> None:
    assert Stamps(_context()).number(value) == BAD


@pytest.mark.parametrize(
    "value", [1_710_062_102.12, 1_710_062_102_120, 1_710_062_102_120.0, 1.71006210212e18]
)
def test_the_unit_of_a_number_is_told_by_its_magnitude(value: float) -> None:
    assert Stamps(_context()).number(value) == (MORNING_US + 120_000, None, 0)


@pytest.mark.parametrize(
    ("text", "reference", "year"),
    [
        ("Dec 31 23:59:58", datetime(2025, 1, 1, 0, 0, 3, tzinfo=UTC), 2024),
        ("Jan  1 00:00:01", datetime(2024, 12, 31, 23, 59, 59, tzinfo=UTC), 2025),
        ("Jan  1 00:00:01", datetime(2025, 1, 1, 0, 0, 3, tzinfo=UTC), 2025),
        ("Aug 30 12:00:00", datetime(2025, 1, 10, tzinfo=UTC), 2024),
        ("Feb 29 12:00:00", datetime(2026, 1, 10, tzinfo=UTC), 2024),
        ("Feb 29 12:00:00", datetime(1902, 1, 10, tzinfo=UTC), 1904),
    ],
)
def test_a_year_that_is_not_said_is_the_one_closest_to_the_reference(
    text: str, reference: datetime, year: int
) -> None:
    time_us, zone, flags = Stamps(_context(reference=reference)).parse(text)
    assert time_us is not None
    assert (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).year == year
    assert (zone, flags) == ("UTC", LineFlag.ZONE_ASSUMED)


def test_another_reference_changes_the_year_of_what_is_remembered() -> None:
    context = _context(reference=datetime(2024, 12, 31, tzinfo=UTC))
    stamps = Stamps(context)
    assert stamps.parse("Dec 31 23:59:58")[0] == _utc_us(2024, 12, 31, 23, 59, 58)
    context.reference = datetime(2020, 1, 2, tzinfo=UTC)
    assert stamps.parse("Dec 31 23:59:58")[0] == _utc_us(2019, 12, 31, 23, 59, 58)
    context.reference = datetime(2024, 12, 31, tzinfo=UTC)
    found = stamps.at_start("Dec 31 23:59:58 gw app: x")
    assert found is not None
    assert found[:2] == (15, _utc_us(2024, 12, 31, 23, 59, 58))


@pytest.mark.parametrize(("year", "expected"), [(1, None), (9999, _utc_us(9998, 3, 10, 9, 15, 2))])
def test_a_reference_at_the_end_of_time_raises_nothing(year: int, expected: int | None) -> None:
    stamps = Stamps(_context(reference=datetime(year, 6, 1, tzinfo=UTC)))
    assert stamps.parse("Mar 10 09:15:02")[0] == expected


def test_a_leap_second_is_the_next_second() -> None:
    stamps = Stamps(_context())
    assert stamps.parse("2016-12-31T23:59:60Z")[0] == _utc_us(2017, 1, 1)
    assert stamps.parse("2016-12-31T23:59:60.5Z")[0] == _utc_us(2017, 1, 1) + 500_000


def test_an_hour_that_comes_twice_is_its_first_and_one_left_out_is_read_by_the_old_clock() -> None:
    stamps = Stamps(_context("America/New_York"))
    assert stamps.parse("2024-11-03T01:30:00")[0] == _utc_us(2024, 11, 3, 5, 30)
    assert stamps.parse("2024-03-10T02:30:00")[0] == _utc_us(2024, 3, 10, 7, 30)
    assert stamps.parse("2024-07-01T00:00:00")[0] == _utc_us(2024, 7, 1, 4)


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("2024-03-10 09:15:02 ERROR broken", 19),
        ("2024-03-10 09:15:02 ESTABLISHED", 19),
        ("2024-03-10 09:15:02,120 - jobs - INFO - x", 23),
        ("2024-03-10 09:15:02.462 +00 INF jobs", 27),
        ("2024-03-10 09:15:02 UTC [4711] LOG:  x", 23),
        ("2024-03-10T09:15:02Z app[1]: x", 20),
        ("Mar 10 09:15:02 gw-1 app[7]: x", 15),
        ("Mar 10 09:15:02.123456 gw-1 app: x", 22),
        ("2024/03/10 09:15:02 [error] 7#7: x", 19),
        ("Sun Mar 10 09:15:02.123456 2024] [core:error]", 31),
        ("2024-13-40T99:99:99Z x", 20),
    ],
)
def test_a_stamp_at_the_start_ends_where_it_ends(line: str, end: int) -> None:
    stamps = Stamps(_context())
    first, again, later = stamps.at_start(line), stamps.at_start(line), stamps.at_start(f"<11>{line}", 4)
    assert first is not None
    assert first[0] == end
    assert again == first
    assert later == (end + 4, *first[1:])
    assert stamps.parse(line[:end]) == first[1:]


@pytest.mark.parametrize(
    "line", ["", "error 2024-03-10 09:15:02", "2024-03-10 09:15:021", "March 10 09:15:02", "²", "12"]
)
def test_where_no_stamp_begins_there_is_none(line: str) -> None:
    stamps = Stamps(_context())
    stamps.parse("2024-03-10 09:15:02")
    assert stamps.at_start(line) is None
    assert stamps.at_start(line, 99) is None


_moments = st.datetimes(min_value=datetime(1900, 1, 2), max_value=datetime(9998, 12, 30))  # noqa: DTZ001 — the zones come later
_offsets = st.integers(-23 * 60 - 59, 23 * 60 + 59)


@given(moments=st.lists(st.tuples(_moments, _offsets), max_size=5))
def test_what_datetime_writes_is_read_back(moments: list[tuple[datetime, int]]) -> None:
    stamps = Stamps(_context())
    for naive, minutes in moments:
        moment = naive.replace(tzinfo=timezone(timedelta(minutes=minutes)))
        expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        for text in (moment.isoformat(), moment.strftime("%Y-%m-%d %H:%M:%S.%f %z")):
            assert stamps.parse(text)[0] == stamps.parse(text)[0] == expected


_pieces = st.sampled_from(
    [
        "2024",
        "-",
        "03",
        "10",
        "T",
        " ",
        "09:15:02",
        ":",
        ".",
        ",",
        "123456",
        "Z",
        "+",
        "0530",
        "Mar",
        "Sun",
        "UTC",
        "60",
        "/",
    ]
)
_texts = st.text(max_size=40) | st.lists(_pieces, max_size=14).map("".join)


@given(texts=st.lists(_texts, max_size=6), zone=st.sampled_from(["UTC", "Asia/Kolkata", "America/New_York"]))
def test_no_text_raises_and_memory_changes_nothing(texts: list[str], zone: str) -> None:
    used = Stamps(_context(zone))
    for text in [*texts, *texts]:
        fresh = Stamps(_context(zone))
        assert used.parse(text) == fresh.parse(text)
        assert used.at_start(text) == fresh.at_start(text)


@pytest.mark.parametrize(
    "text", ["9", "2024-03-10T09:15:02." + "1", " ", "Mar ", "+", "2024-03-10T09:15:02", "1."]
)
def test_a_megabyte_of_anything_ends_soon(text: str) -> None:
    hostile = text + text[-1] * 1_000_000
    for read in (Stamps(_context()).parse, Stamps(_context()).at_start):
        assert processor_seconds(partial(read, hostile)) < LIMIT_S


def test_memory_is_bounded() -> None:
    stamps = Stamps(_context())
    for index in range(20_000):
        stamps.parse(f"2024-03-10T09:15:02.{index:06}Z")
        stamps.parse(f"{index % 28 + 1}/Mar/{2000 + index % 90}:09:{index % 60:02}:{index % 59:02} +0000")
    assert max(len(known) for known in (stamps._moments, stamps._tails, stamps._texts)) <= 4096
