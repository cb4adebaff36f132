"""Access lines of real servers are read as they were meant, odd clients and requests included."""

import random
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.access_fields import access_fields
from aeolus_sandbox.guest.logs.fields import fields_of
from aeolus_sandbox.guest.logs.formats.access import AccessLines
from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.lines import LEVELS, LineFlag, Parsed
from tests.unit.logs.linear import LENGTH, LIMIT_S, processor_seconds

MORNING_US = 1_710_062_102_000_000  # 2024-03-10T09:15:02Z
HOUR_US = 3_600_000_000

TABLET = (
    r'2001:db8::7f:1 - - [10/Mar/2024:09:15:02 +0000] "GET /a?q=1 HTTP/2.0" 200 512 "-" "Tablet 10\" (Linux)"'
)
ANN = r'fe80::1%eth0 - ann [10/Mar/2024:09:15:02 -0800] "GET / HTTP/1.1" 304 - "https://e.example/\"x\"" ""'
TLS = r'192.0.2.9 - - [10/Mar/2024:09:15:02 +0530] "\x16\x03\x01\x02" 400 226 "-" "-"'
TIMED_OUT = '192.0.2.9 - - [10/Mar/2024:09:15:02 +0000] "-" 408 - "-" "-"'
COMMON = '192.0.2.9 - - [10/Mar/2024:09:15:02 +0000] "GET /a b c HTTP/1.1" 404 10'
HOSTS = '203.0.113.5, 192.0.2.9 - - [10/Mar/2024:09:15:02 +0000] "GET / HTTP/1.1" 200 5 "-" "x"'
EXTRA = 'host.example.net - - [10/Mar/2024:09:15:02 +0000] "OPTIONS * HTTP/1.0" 200 126 "-" "x" 1502 "extra"'
LINES = (TABLET, ANN, TLS, TIMED_OUT, COMMON, HOSTS, EXTRA)


def _parse(line: str, combined: bool | None = None) -> Parsed | None:
    return AccessLines(ParseContext(reference=datetime(2024, 3, 11, tzinfo=UTC)), combined).parse(line)


def _record(line: str, combined: bool | None = None) -> Parsed:
    parsed = _parse(line, combined)
    assert parsed is not None
    return parsed


def _fields(line: str, combined: bool | None = None) -> dict[str, Any]:
    return fields_of(_record(line, combined), line)


def test_a_combined_line_is_all_its_fields() -> None:
    parsed = _record(TABLET, combined=True)
    assert parsed == Parsed("GET /a?q=1 HTTP/2.0", LEVELS.index("info"), MORNING_US, "+0000", parsed.fields)
    assert _fields(TABLET, combined=True) == {
        "host": "2001:db8::7f:1",
        "ident": None,
        "user": None,
        "request": "GET /a?q=1 HTTP/2.0",
        "method": "GET",
        "path": "/a?q=1",
        "protocol": "HTTP/2.0",
        "status": 200,
        "bytes": 512,
        "referer": None,
        "user_agent": 'Tablet 10" (Linux)',
    }


def test_a_host_with_a_zone_a_user_and_escaped_quotes_are_read() -> None:
    parsed, fields = _record(ANN), _fields(ANN)
    assert (fields["host"], fields["user"], fields["bytes"]) == ("fe80::1%eth0", "ann", None)
    assert (fields["referer"], fields["user_agent"]) == ('https://e.example/"x"', "")
    assert (parsed.time_us, parsed.zone) == (MORNING_US + 8 * HOUR_US, "-0800")


def test_a_request_of_other_bytes_is_kept_as_it_is() -> None:
    fields = _fields(TLS)
    assert fields["request"] == r"\x16\x03\x01\x02"
    assert [fields[key] for key in ("method", "path", "protocol", "status")] == [None, None, None, 400]


def test_a_request_that_never_came_is_none() -> None:
    parsed, fields = _record(TIMED_OUT), _fields(TIMED_OUT)
    assert (parsed.message, fields["request"], fields["method"], fields["bytes"]) == (None, None, None, None)
    assert parsed.level == LEVELS.index("warning")


def test_a_path_may_have_spaces_and_a_common_line_has_no_agent() -> None:
    fields = _fields(COMMON)
    assert (fields["method"], fields["path"], fields["protocol"]) == ("GET", "/a b c", "HTTP/1.1")
    assert not {"referer", "user_agent", "extra"} & set(fields)


def test_a_list_of_clients_is_flagged() -> None:
    parsed, fields = _record(HOSTS), _fields(HOSTS)
    assert (fields["host"], parsed.flags) == ("203.0.113.5, 192.0.2.9", LineFlag.HOST_LIST)
    assert _record(HOSTS.replace(", ", ",")).flags == LineFlag.HOST_LIST


def test_what_follows_the_format_is_kept() -> None:
    assert _fields(EXTRA)["extra"] == ["1502", "extra"]
    assert _fields(EXTRA)["path"] == "*"
    assert _fields(COMMON + " 77 8")["extra"] == ["77", "8"]
    assert _fields(TABLET, combined=False)["extra"] == ["-", 'Tablet 10" (Linux)']
    assert _fields(COMMON + ' "only one"')["extra"] == ["only one"]
    assert "extra" not in _fields(TABLET)


def test_the_name_of_a_virtual_host_may_come_first() -> None:
    fields = _fields("www.example.net:443 " + TABLET)
    assert (fields["vhost"], fields["host"]) == ("www.example.net:443", "2001:db8::7f:1")
    assert _fields(COMMON.replace("- -", "- ann lee"))["user"] == "ann lee"
    assert _fields("::1 - ann lee [10/Mar/2024:09:15:02 +0000] " + '"GET / HTTP/1.1" 200 5')["host"] == "::1"


def test_the_format_asked_for_is_the_format_read() -> None:
    assert [_parse(line, combined=True) is not None for line in LINES] == [True] * 4 + [False] + [True] * 2
    assert [_parse(line, combined=False) is not None for line in LINES] == [True] * 7
    assert ["user_agent" in _fields(line) for line in LINES] == [True] * 4 + [False] + [True] * 2


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ("200", "info"),
        ("101", "info"),
        ("304", "info"),
        ("404", "warning"),
        ("503", "error"),
        ("000", "info"),
    ],
)
def test_the_level_is_that_of_the_status(status: str, level: str) -> None:
    assert _record(COMMON.replace(" 404 ", f" {status} ")).level == LEVELS.index(level)


@pytest.mark.parametrize(
    "request_line", ["GET /", "GET / HTTP/0.9x y", "get / HTTP/1.1", "GET", "GET  HTTP/1.1", "", "A B C"]
)
def test_odd_requests_are_kept(request_line: str) -> None:
    fields = _fields(COMMON.replace("GET /a b c HTTP/1.1", request_line))
    assert fields["request"] == request_line
    assert (fields["method"], fields["path"]) == (("GET", "/") if request_line == "GET /" else (None, None))


@pytest.mark.parametrize(
    "line",
    [
        *("", "plain text", "[warn] low disk", '"', "- - - [] ", TABLET[:60], TABLET[:-1], TIMED_OUT[:-1]),
        *(
            COMMON.replace(" 404 ", " 4040 "),
            COMMON.replace(" 10", " 1O"),
            COMMON.replace(" 10", ""),
            COMMON + ' "x',
        ),
        *(
            COMMON.replace(" 10", " " + "9" * 5000),
            COMMON.replace("192.0.2.9 - - ", ""),
            " - -" + COMMON[13:],
        ),
        '2024-03-10 09:15:02 [main] "quoted" 200 10',
        '[10/Mar/2024:09:15:02 +0000] "GET / HTTP/1.1" 200 5',
    ],
)
def test_what_is_no_access_line_is_left_to_other_formats(line: str) -> None:
    parser = AccessLines(ParseContext(), None)
    assert parser.parse(line) is None
    assert parser.parse(COMMON) is not None, "the next line is read again"


def test_a_bad_time_is_flagged_and_the_line_kept() -> None:
    parsed = _record(COMMON.replace("10/Mar", "32/Mar"))
    assert (parsed.time_us, parsed.zone, parsed.flags) == (None, None, LineFlag.BAD_TIME)


_words = st.text(
    st.characters(codec="utf-8", exclude_characters=' ",-[]\\', exclude_categories=["Z", "C"]),
    min_size=1,
    max_size=9,
)
_quotable = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20).filter(
    lambda text: text != "-"
)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(
    host=_words,
    user=_words,
    referer=_quotable,
    agent=_quotable,
    status=st.integers(100, 599),
    size=st.integers(0, 10**18),
)
def test_fields_are_read_back(host: str, user: str, referer: str, agent: str, status: int, size: int) -> None:
    line = f'{host} - {user} [10/Mar/2024:09:15:02 +0000] "PUT /x HTTP/1.1" {status} {size}'
    fields = _fields(f"{line} {_quoted(referer)} {_quoted(agent)}", combined=True)
    assert [fields[key] for key in ("host", "user", "status", "bytes")] == [host, user, status, size]
    assert (fields["referer"], fields["user_agent"]) == (referer, agent)
    assert "extra" not in fields


@given(
    line=st.sampled_from(LINES),
    cuts=st.lists(st.tuples(st.integers(0, 120), st.text(max_size=2)), max_size=5),
)
def test_no_spoilt_line_raises_and_what_is_read_can_be_sent(line: str, cuts: list[tuple[int, str]]) -> None:
    for position, text in cuts:
        line = line[:position] + text + line[position + 1 :]
    for combined in (None, True, False):
        check_both_looks(line, combined)


@given(line=st.text() | st.text(' "[]\\-0123456789,:x', max_size=80))
def test_no_text_raises(line: str) -> None:
    for combined in (None, True, False):
        check_both_looks(line, combined)


def check_both_looks(line: str, combined: bool | None) -> None:
    """Check that the quick look at a line and the reading of its fields are of one mind."""
    parsed, fields = _parse(line, combined), access_fields(line, combined=combined)
    assert (parsed is None) == (fields is None)
    if parsed is not None and fields is not None:
        fields.pop("time")
        assert fields_of(parsed, line) == fields
        assert parsed.message == fields["request"]
        msgspec.json.encode(parsed)


def test_no_random_bytes_raise() -> None:
    random_bytes = random.Random(37)
    parser = AccessLines(ParseContext(), None)
    for _ in range(10_000):
        parser.parse(random_bytes.randbytes(200).decode("utf-8", "replace"))


@pytest.mark.parametrize(
    "piece", ["[", " [", "] ", '] "', '"', '\\"', '"\\', "\\", " ", ",", "a, ", "9", '" ', '" "', "1 "]
)
def test_time_is_in_proportion_to_the_length(piece: str) -> None:
    parser = AccessLines(ParseContext(), None)
    for begin in (
        "",
        "a - - [",
        'a - - [x] "',
        'a - - [x] "\\',
        'a - - [x] "-" 200 ',
        'a - - [x] "-" 200 - "',
    ):
        line = begin + piece * (LENGTH // len(piece))
        assert processor_seconds(partial(parser.parse, line)) < LIMIT_S
