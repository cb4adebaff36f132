"""Syslog of RFC 5424 and RFC 3164, and of those who write something like them."""

import string
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.formats.haproxy import proxy_fields
from aeolus_sandbox.guest.logs.formats.syslog import SyslogLines
from aeolus_sandbox.guest.logs.lines import LEVELS, LineFlag, Parsed

INSTANT_US = 1_710_062_102_000_000  # 2024-03-10 09:15:02 UTC


def lines_near(year: int, month: int, day: int) -> SyslogLines:
    return SyslogLines(ParseContext(reference=datetime(year, month, day, 12, tzinfo=UTC)))


def parsed(line: str) -> Parsed:
    found = lines_near(2024, 3, 11).parse(line)
    assert found is not None
    return found


def fields(line: str) -> dict[str, Any]:
    found = parsed(line).fields
    assert found is not None
    return found


def level(line: str) -> str | None:
    found = parsed(line).level
    return None if found is None else LEVELS[found]


def test_structured_data_is_unescaped_and_the_message_follows_its_mark() -> None:
    line = (
        r"<165>1 2024-03-10T09:15:02.120Z gw-1.example.net billing 4711 ID47 "
        r'[ex@32473 note="a \"quoted\" word" path="C:\\temp" list="[1\]"][meta@32473 seq="9"]'
        " \ufeffpaid ] [ok"
    )
    found = parsed(line)
    assert found.fields == {
        "facility": 20,
        "severity": 5,
        "host": "gw-1.example.net",
        "app": "billing",
        "pid": 4711,
        "msgid": "ID47",
        "data": {
            "ex@32473": {"note": 'a "quoted" word', "path": r"C:\temp", "list": "[1]"},
            "meta@32473": {"seq": "9"},
        },
    }
    assert found.message == "paid ] [ok"
    assert (found.time_us, found.zone) == (INSTANT_US + 120_000, "Z")
    assert level(line) == "notice"


def test_nil_values_are_none_and_the_message_is_empty() -> None:
    found = parsed("<14>1 - - - - - -")
    assert found.fields == {
        "facility": 1,
        "severity": 6,
        "host": None,
        "app": None,
        "pid": None,
        "msgid": None,
        "data": None,
    }
    assert (found.message, found.time_us, found.flags) == ("", None, 0)


@pytest.mark.parametrize(
    ("data", "elements"),
    [
        (r'[x@1 p="\A"]', {"x@1": {"p": r"\A"}}),
        ('[x@1 ip="1" ip="2"]', {"x@1": {"ip": ["1", "2"]}}),
        ('[x@1 ip="1" ip="2" ip="3"]', {"x@1": {"ip": ["1", "2", "3"]}}),
        ('[x@1 empty=""][y@1]', {"x@1": {"empty": ""}, "y@1": {}}),
        ('[x@1 a="1"][x@1 b="2"]', {"x@1": {"a": "1", "b": "2"}}),
        ('[x@1 open="a]b"]', {"x@1": {"open": "a]b"}}),
        (r'[x@1 last="\\"]', {"x@1": {"last": "\\"}}),
    ],
)
def test_structured_data(data: str, elements: dict[str, Any]) -> None:
    assert fields(f"<14>1 2024-03-10T09:15:02Z h a - - {data} m")["data"] == elements
    assert parsed(f"<14>1 2024-03-10T09:15:02Z h a - - {data}").message == ""


@pytest.mark.parametrize(
    "line",
    [
        "<192>1 2024-03-10T09:15:02Z h a - - - m",
        "<192>Mar 10 09:15:02 h a: m",
        "<014>Mar 10 09:15:02 h a: m",
        "<>1 2024-03-10T09:15:02Z h a - - - m",
        "<-1>Mar 10 09:15:02 h a: m",
        "<14>2 2024-03-10T09:15:02Z h a - - - m",
        '<14>1 2024-03-10T09:15:02Z h a - - [x@1 ip="1',
        '<14>1 2024-03-10T09:15:02Z h a - - [x@1 ip="1"',
        '<14>1 2024-03-10T09:15:02Z h a - - [x@1 ip="1"]m',
        "<14>1 2024-03-10T09:15:02Z h a - - [] m",
        "<14>1 2024-03-10T09:15:02Z h a - -",
        "",
        "plain text: error",
        "\tat com.example.Till.pay(Till.java:42)",
        "2024-03-10 09:15:02,120 WARNING app.db: pool exhausted",
        "2024-03-10T09:15:02.120Z INFO app.db: ready",
        "2024-03-10T09:15:02.120Z started without a program",
    ],
)
def test_what_is_no_syslog_is_none(line: str) -> None:
    assert lines_near(2024, 3, 11).parse(line) is None


def test_a_message_is_kept_whole_whatever_is_in_it() -> None:
    message = "tab\t" + r"\u2603" + "\u2603" + "x" * 8192 + ' ] "[ '
    assert parsed(f'<14>1 - h a - - [x@1 a="b"] {message}').message == message


def test_a_bad_stamp_is_flagged_and_the_line_kept() -> None:
    found = parsed("<14>1 2024-13-40T99:99:99Z h a - - - m")
    assert (found.time_us, found.message, found.flags) == (None, "m", LineFlag.BAD_TIME)


@pytest.mark.parametrize(
    ("line", "expected", "message"),
    [
        ("Mar 10 09:15:02 web-1 sshd[42]: hi", {"host": "web-1", "app": "sshd", "pid": 42}, "hi"),
        ("Mar 10 09:15:02 web-1 kernel: [1.5] up", {"host": "web-1", "app": "kernel"}, "[1.5] up"),
        ("Mar 10 09:15:02 2001:db8::1 app: x", {"host": "2001:db8::1", "app": "app"}, "x"),
        (
            "Mar 10 09:15:02 web-1 CRON(pam_unix)[9]: x",
            {"host": "web-1", "app": "CRON(pam_unix)", "pid": 9},
            "x",
        ),
        (
            "Mar 10 09:15:02 web-1 postfix/smtpd[9]: x",
            {"host": "web-1", "app": "postfix/smtpd", "pid": 9},
            "x",
        ),
        ("Mar 10 09:15:02 web-1 app[worker-1]: x", {"host": "web-1", "app": "app", "pid": "worker-1"}, "x"),
        (
            "Mar 10 09:15:02 web-1 last message repeated 3 times",
            {"host": "web-1"},
            "last message repeated 3 times",
        ),
        ("Mar 10 09:15:02 web-1 http://e.example is down", {"host": "web-1"}, "http://e.example is down"),
        ("Mar 10 09:15:02 app[12]: no host", {"app": "app", "pid": 12}, "no host"),
        ("Mar 10 09:15:02 web-1 app:", {"host": "web-1", "app": "app"}, ""),
    ],
)
def test_a_stored_line_has_host_program_and_process_where_they_are(
    line: str, expected: dict[str, Any], message: str
) -> None:
    found = parsed(line)
    assert (found.fields, found.message, found.time_us) == (expected, message, INSTANT_US)
    assert found.flags == LineFlag.ZONE_ASSUMED
    sent = parsed(f"<11>{line}")
    assert sent.fields == expected | {"facility": 1, "severity": 3}
    assert (sent.message, sent.time_us) == (message, INSTANT_US)


@pytest.mark.parametrize(
    ("stamp", "added_us", "zone"),
    [
        ("2024-03-10T09:15:02.120123+00:00", 120_123, "+00:00"),
        ("2024-03-10T14:45:02+05:30", 0, "+05:30"),
        ("2024-03-10T09:15:02Z", 0, "Z"),
        ("Mar 10 09:15:02.120", 120_000, "UTC"),
    ],
)
def test_stamps_of_today_and_fractions(stamp: str, added_us: int, zone: str) -> None:
    found = parsed(f"{stamp} web-1 app[7]: x")
    assert (found.time_us, found.zone) == (INSTANT_US + added_us, zone)
    assert found.fields == {"host": "web-1", "app": "app", "pid": 7}


def test_a_date_without_a_year_is_the_one_next_to_the_file() -> None:
    new_year = lines_near(2024, 1, 1)
    december, january = new_year.parse("Dec 31 23:59:59 h a: x"), new_year.parse("Jan  1 00:00:01 h a: x")
    assert december is not None
    assert january is not None
    assert december.time_us == datetime(2023, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1e6
    assert january.time_us == datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC).timestamp() * 1e6


@pytest.mark.parametrize(
    ("line", "expected", "message", "name"),
    [
        (
            "<189>4711: *Mar 10 09:15:02.120: %LINK-3-UPDOWN: Interface Gi0/1, changed state to up",
            {"facility": 23, "severity": 5, "app": "LINK", "msgid": "UPDOWN"},
            "Interface Gi0/1, changed state to up",
            "notice",
        ),
        (
            "*Mar 10 09:15:02.120 UTC: %SYS-5-CONFIG_I: Configured",
            {"severity": 5, "app": "SYS", "msgid": "CONFIG_I"},
            "Configured",
            "notice",
        ),
        (
            "<187>12: core-1: .Mar 10 09:15:02.120: %OSPF-4-ERRRCV: bad packet",
            {"facility": 23, "severity": 3, "host": "core-1", "app": "OSPF", "msgid": "ERRRCV"},
            "bad packet",
            "error",
        ),
    ],
)
def test_devices_of_cisco(line: str, expected: dict[str, Any], message: str, name: str) -> None:
    found = parsed(line)
    assert (found.fields, found.message, level(line)) == (expected, message, name)
    assert found.time_us == INSTANT_US + 120_000


def test_a_priority_alone_is_enough() -> None:
    assert parsed("<13>hello there").message == "hello there"
    assert fields("<14>shopd[9]: ready") == {"facility": 1, "severity": 6, "app": "shopd", "pid": 9}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("<11>Mar 10 09:15:02 h app: x", "error"),
        ("<0>Mar 10 09:15:02 h app: x", "emergency"),
        ("<15>Mar 10 09:15:02 h app: x", "debug"),
        ("<14>Mar 10 09:15:02 h app: error: the severity counts", "info"),
        ("Mar 10 09:15:02 h sshd[7]: error: no severity", "error"),
        ("Mar 10 09:15:02 h app: terror level nil", None),
    ],
)
def test_the_level_is_the_severity_or_what_the_message_begins_with(line: str, name: str | None) -> None:
    assert level(line) == name


def test_a_request_through_haproxy_is_taken_apart() -> None:
    message = (
        "2001:db8::7:51234 [10/Mar/2024:09:15:02.107] fe_web~ be_shop/<NOSRV> 0/-1/-1/-1/13 503 +217 a=1 - SC-- "
        '10/8/3/1/+2 0/4 {shop.example.net|} {} "POST /cart?x=1 HTTP/1.1"'
    )
    expected = {
        "client": "2001:db8::7",
        "port": 51234,
        "accepted": "10/Mar/2024:09:15:02.107",
        "frontend": "fe_web~",
        "backend": "be_shop",
        "server": "<NOSRV>",
        "times": {"request": 0, "queue": None, "connect": None, "response": None, "total": 13},
        "status": 503,
        "bytes": 217,
        "request_cookie": "a=1",
        "termination": "SC--",
        "connections": "10/8/3/1/+2",
        "queues": "0/4",
        "request_headers": "{shop.example.net|}",
        "response_headers": "{}",
        "request": "POST /cart?x=1 HTTP/1.1",
        "method": "POST",
        "path": "/cart?x=1",
        "protocol": "HTTP/1.1",
    }
    assert proxy_fields(message) == expected
    assert fields(f"<134>Mar 10 09:15:02 lb-1 haproxy[9]: {message}").items() >= expected.items()


def test_a_connection_through_haproxy_has_no_request() -> None:
    found = proxy_fields(
        "198.51.100.7:5 [10/Mar/2024:09:15:02.1] fe_db be_db/db-1 1/0/5007 212 -- 4/2/1/0/0 0/0"
    )
    assert found is not None
    assert found["times"] == {"queue": 1, "connect": 0, "total": 5007}
    assert "request" not in found
    assert "status" not in found
    assert proxy_fields("Server be_shop/shop-2 is DOWN, reason: Layer4 timeout") is None


names = st.text(string.ascii_letters + string.digits + "@.-", min_size=1, max_size=20)
values = st.text(max_size=40)


@given(
    data=st.dictionaries(names, st.dictionaries(names, values, max_size=4), min_size=1, max_size=4),
    message=values,
)
def test_what_is_written_by_the_rules_is_read_back(data: dict[str, dict[str, str]], message: str) -> None:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")

    written = "".join(
        "[" + name + "".join(f' {key}="{escaped(value)}"' for key, value in values.items()) + "]"
        for name, values in data.items()
    )
    found = parsed(f"<14>1 - h a - - {written} \ufeff{message}")
    assert found.message == message
    assert found.fields is not None
    assert found.fields["data"] == data


header_pieces = st.sampled_from(
    [
        "<14>",
        "<14>1 ",
        "- ",
        "Mar 10 09:15:02 ",
        "2024-03-10T09:15:02Z ",
        "h ",
        "app[7]: ",
        "[x@1",
        ' a="',
        '"]',
        "\\",
        "%A-3-B: ",
    ]
)


@given(parts=st.lists(header_pieces | st.text(max_size=10), max_size=20))
def test_no_line_raises(parts: list[str]) -> None:
    lines_near(2024, 3, 11).parse("".join(parts))
