"""Log files as they look in real life: of every line the right level and time, and of every file each line.

All hosts, names and texts of the samples are invented.
"""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aeolus_sandbox.guest.logs import fields as fields_module
from aeolus_sandbox.guest.logs.formats import parser_for
from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.frames import Join
from aeolus_sandbox.guest.logs.joining import Joiner
from aeolus_sandbox.guest.logs.lines import LEVELS, Parsed

SAMPLES = Path(__file__).parent / "samples"
REFERENCE = datetime(2024, 3, 11, tzinfo=UTC)


class Expected(NamedTuple):
    lines: int
    levels: dict[str | None, int]
    """How many of the lines that have a format have which level."""
    raw: list[int]
    """Numbers of the lines that have no format."""
    timeless: list[int]
    """Numbers of the lines that have a format but no time."""
    events: int
    """How many events the lines are joined to."""


EXPECTED = {
    "apache_access": Expected(10, {"info": 4, "warning": 5, "error": 1}, raw=[], timeless=[], events=10),
    "apache_error": Expected(
        10, {"trace": 1, "info": 1, "notice": 3, "warning": 1, "error": 4}, raw=[], timeless=[], events=10
    ),
    "docker": Expected(
        15, {None: 8, "debug": 1, "info": 2, "warning": 1, "error": 3}, raw=[], timeless=[], events=12
    ),
    "haproxy": Expected(11, {None: 10, "info": 1}, raw=[], timeless=[], events=11),
    "journal.json": Expected(
        10,
        {
            None: 1,
            "debug": 1,
            "info": 2,
            "notice": 1,
            "warning": 1,
            "error": 1,
            "critical": 1,
            "alert": 1,
            "emergency": 1,
        },
        raw=[],
        timeless=[],
        events=10,
    ),
    "kubernetes_cri": Expected(
        16, {None: 10, "info": 2, "warning": 2, "error": 1, "critical": 1}, raw=[], timeless=[], events=12
    ),
    "logback": Expected(
        14,
        {"trace": 1, "debug": 1, "info": 2, "warning": 2, "error": 1, "critical": 1},
        raw=[6, 7, 8, 9, 10, 11],
        timeless=[13],
        events=8,
    ),
    "nginx_access": Expected(11, {"info": 5, "warning": 5, "error": 1}, raw=[], timeless=[], events=11),
    "nginx_error": Expected(
        11,
        {"info": 1, "notice": 3, "warning": 1, "error": 2, "critical": 1, "alert": 1, "emergency": 1},
        raw=[11],
        timeless=[],
        events=11,
    ),
    "pino": Expected(
        11,
        {"trace": 1, "debug": 1, "info": 4, "warning": 1, "error": 1, "critical": 1},
        raw=[9, 10],
        timeless=[],
        events=11,
    ),
    "postgresql": Expected(
        15,
        {"debug": 1, "info": 7, "warning": 1, "error": 2, "critical": 2},
        raw=[6, 7],
        timeless=[],
        events=13,
    ),
    "python_logging": Expected(
        23,
        {"debug": 1, "info": 4, "warning": 2, "error": 2, "critical": 1},
        raw=[*range(4, 16), 23],
        timeless=[16, 17, 20],
        events=11,
    ),
    "rails": Expected(
        13,
        {None: 1, "debug": 1, "info": 3, "warning": 1, "error": 1, "critical": 1},
        raw=[7, 8, 9, 12, 13],
        timeless=[],
        events=13,
    ),
    "syslog_3164": Expected(
        19,
        {None: 7, "info": 1, "notice": 5, "warning": 1, "error": 2, "critical": 1, "emergency": 1},
        raw=[19],
        timeless=[17, 18],
        events=19,
    ),
    "syslog_5424": Expected(
        13,
        {"debug": 1, "info": 4, "notice": 1, "warning": 1, "error": 1, "critical": 1, "emergency": 1},
        raw=[7, 8, 9],
        timeless=[3, 11],
        events=13,
    ),
    "windows_crlf": Expected(
        11,
        {"info": 3, "warning": 1, "error": 2, "critical": 1},
        raw=[4, 5, 10, 11],
        timeless=[6, 7, 9],
        events=8,
    ),
    "zap": Expected(
        12,
        {"debug": 1, "info": 3, "warning": 1, "error": 1, "critical": 2},
        raw=[5, 6, 7, 8],
        timeless=[],
        events=8,
    ),
}


def lines_of(name: str) -> list[bytes]:
    """Return the lines as they reach the parsers: without their ends and without a byte order mark."""
    data = (SAMPLES / f"{name}.log").read_bytes().removeprefix(b"\xef\xbb\xbf")
    return [line.removesuffix(b"\r") for line in data.removesuffix(b"\n").split(b"\n")]


def records_of(name: str) -> list[Parsed | None]:
    parser = parser_for("auto", ParseContext(reference=REFERENCE))
    return [parser.parse(line.decode()) for line in lines_of(name)]


def record_of(name: str, number: int) -> Parsed:
    record = records_of(name)[number - 1]
    assert record is not None
    return record


def fields_of(name: str, number: int) -> dict[str, Any]:
    return fields_module.fields_of(record_of(name, number), lines_of(name)[number - 1].decode())


def test_every_sample_is_checked() -> None:
    assert {path.name.removesuffix(".log") for path in SAMPLES.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_line_has_its_level_and_its_time(name: str) -> None:
    expected = EXPECTED[name]
    records = records_of(name)
    known = [(number, record) for number, record in enumerate(records, 1) if record is not None]
    assert len(records) == expected.lines
    assert (
        Counter(None if record.level is None else LEVELS[record.level] for _, record in known)
        == expected.levels
    )
    assert sorted(set(range(1, len(records) + 1)) - {number for number, _ in known}) == expected.raw
    assert [number for number, record in known if record.time_us is None] == expected.timeless


@pytest.mark.parametrize("name", EXPECTED)
def test_no_time_is_far_from_the_others(name: str) -> None:
    for number, record in enumerate(records_of(name), 1):
        if record is not None and record.time_us is not None:
            away_s = abs(record.time_us / 1e6 - REFERENCE.timestamp())
            last_of_year = name == "syslog_3164" and number == 13
            assert away_s < (100 if last_of_year else 2) * 86_400


@pytest.mark.parametrize("name", EXPECTED)
def test_joined_to_events_no_line_is_lost(name: str) -> None:
    joiner = Joiner(Join())
    events: list[list[bytes]] = []
    for line in lines_of(name):
        if joiner.continues(line):
            events[-1].append(line)
        else:
            events.append([line])
    assert [line for event in events for line in event] == lines_of(name)
    assert len(events) == EXPECTED[name].events


def test_an_error_of_nginx_has_its_request() -> None:
    fields = fields_of("nginx_error", 7)
    assert (fields["client"], fields["request"]) == ("198.51.100.7", "POST /cart HTTP/1.1")
    assert (fields["upstream"], fields["referrer"]) == (
        "http://192.0.2.80:8080/cart",
        "https://shop.example.net/item/9",
    )


def test_an_error_of_apache_has_its_module_and_client() -> None:
    record = record_of("apache_error", 4)
    assert record.message == "client denied by server configuration: /srv/docs/.git"
    assert record.time_us == 1_710_062_103_000_001
    assert record.fields == {
        "module": "authz_core",
        "pid": 4712,
        "tid": 140302,
        "client": "2001:db8::31:40022",
        "code": "AH01630",
    }


def test_access_lines_of_one_file_may_be_common_and_combined() -> None:
    assert "user_agent" not in fields_of("apache_access", 3)
    assert fields_of("apache_access", 6)["user_agent"] == 'Mozilla/5.0 (compatible; bot "x")'
    assert fields_of("apache_access", 10)["method"] == "PROPFIND"
    assert record_of("nginx_access", 11).time_us == 1_710_062_109_000_000


def test_a_request_through_haproxy_has_its_server_and_times() -> None:
    fields = fields_of("haproxy", 3)
    assert (fields["client"], fields["frontend"], fields["backend"], fields["server"]) == (
        "2001:db8:7::41",
        "fe_web~",
        "be_shop",
        "shop-2",
    )
    assert (fields["status"], fields["bytes"], fields["path"]) == (404, 233, "/api/items?q=a%20b")
    assert fields["times"] == {"request": 0, "queue": 0, "connect": 1, "response": 40, "total": 41}
    assert fields_of("haproxy", 5)["request"] == "<BADREQ>"
    assert "method" not in fields_of("haproxy", 5)


def test_a_statement_of_postgresql_goes_on_in_the_next_lines() -> None:
    record = record_of("postgresql", 4)
    assert record.fields == {"pid": 4711, "client": "app@shop"}
    assert record.message == 'relation "itemz" does not exist at character 15'
    assert record_of("postgresql", 14).time_us == 1_710_058_506_000_000 + 3_600_000_000


def test_the_journal_has_its_own_names_and_texts_of_bytes() -> None:
    record = record_of("journal.json", 4)
    assert record.message == "café\x1b[m"
    assert record.time_us == 1_710_062_103_100_000
    assert record.fields is None  # the line itself


def test_lines_of_containers_have_what_is_inside_and_their_stream() -> None:
    record = record_of("docker", 3)
    assert (record.message, record.time_us) == ("cannot pay", 1_710_062_102_500_000)
    assert fields_of("docker", 3)["order"] == 9
    assert fields_of("docker", 3)["stream"] == "stderr"
    assert record_of("docker", 12).message == "a long line that was cut, and its end"
    assert record_of("kubernetes_cri", 8).message == "long message in three pieces"
    assert fields_of("kubernetes_cri", 4) == {"thread": 1, "caller": "controller.go:77", "stream": "stderr"}


def test_a_logger_of_java_has_its_thread() -> None:
    assert fields_of("logback", 4) == {
        "pid": 4711,
        "service": "shop",
        "thread": "nio-8080-exec-1",
        "logger": "c.e.s.Till",
    }
    assert record_of("logback", 12).message == "ERROR is only a word here"


def test_a_message_of_zap_has_its_object() -> None:
    assert fields_of("zap", 2) == {
        "logger": "db",
        "caller": "db/pool.go:17",
        "context": {"pool": {"size": 3}},
    }
    assert record_of("zap", 9).time_us == 1_710_062_102_160_000


def test_lines_of_windows_have_no_carriage_return_but_the_one_inside() -> None:
    assert record_of("windows_crlf", 1).message == "listening"
    assert fields_of("windows_crlf", 6) == {"level": "info", "msg": "first"}
    assert lines_of("windows_crlf")[10] == b"with a lone \r in it"


def test_dates_without_a_year_are_next_to_the_file() -> None:
    record = record_of("syslog_3164", 13)
    assert record.time_us == datetime(2023, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1e6
