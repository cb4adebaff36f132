"""Plain lines of the usual loggers: their levels, loggers and times, and never a word of the message for a level."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.formats import heads
from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.formats.text import TextLines
from aeolus_sandbox.guest.logs.levels import level_of_name
from aeolus_sandbox.guest.logs.lines import LEVELS, LineFlag, Parsed

INSTANT_US = 1_710_062_102_000_000  # 2024-03-10 09:15:02 UTC


def lines() -> TextLines:
    return TextLines(ParseContext(reference=datetime(2024, 3, 11, tzinfo=UTC)))


def parsed(line: str) -> Parsed:
    found = lines().parse(line)
    assert found is not None
    return found


def level_of(found: Parsed) -> str | None:
    return None if found.level is None else LEVELS[found.level]


STAMPED: list[tuple[str, str | None, str, dict[str, Any]]] = [
    # Python: logging, Flask, gunicorn, loguru
    ("2024-03-10 09:15:02,120 WARNING app.db: pool: full", "warning", "pool: full", {"logger": "app.db"}),
    ("2024-03-10 09:15:02,120 - app.db - ERROR - broke", "error", "broke", {"logger": "app.db"}),
    ("[2024-03-10 09:15:02,120] [INFO] hi", "info", "hi", {}),
    ("[2024-03-10 09:15:02,120] ERROR in app: broke", "error", "in app: broke", {}),
    ("2024-03-10 09:15:02.120 | SUCCESS  | app.db:query:42 - done", "info", "done", {"logger": "app.db:query:42"}),
    # Java: logback, log4j, Spring Boot
    (
        "2024-03-10 09:15:02,120 [pool-1-thread-2] DEBUG c.e.Main - x",
        "debug",
        "x",
        {"thread": "pool-1-thread-2", "logger": "c.e.Main"},
    ),
    ("2024-03-10 09:15:02,120 ERROR [main] c.e.Main - x", "error", "x", {"thread": "main", "logger": "c.e.Main"}),
    ("2024-03-10 09:15:02,120 [ERROR] [main] c.e.Main - x", "error", "x", {"thread": "main", "logger": "c.e.Main"}),
    (
        "2024-03-10 09:15:02.120  INFO 4711 --- [           main] c.e.Main                  : x",
        "info",
        "x",
        {"pid": 4711, "thread": "main", "logger": "c.e.Main"},
    ),
    (
        "2024-03-10T09:15:02.120Z  WARN 4711 --- [shop] [exec-1] c.e.Main : x",
        "warning",
        "x",
        {"pid": 4711, "service": "shop", "thread": "exec-1", "logger": "c.e.Main"},
    ),
    # .NET: NLog, Serilog
    ("2024-03-10 09:15:02.1200|WARN|App.Db|slow", "warning", "slow", {"logger": "App.Db"}),
    ("2024-03-10 09:15:02.120 +00:00 [INF] ready", "info", "ready", {}),
    ("2024-03-10 09:15:02.120 +00 INF jobs: done (failed=0)", "info", "jobs: done (failed=0)", {}),
    # Go: zap's console, glog, the standard logger
    (
        '2024-03-10T09:15:02.120Z\tINFO\tapp/a.go:42\tup\t{"port": 80}',
        "info",
        "up",
        {"caller": "app/a.go:42", "context": {"port": 80}},
    ),
    ("2024-03-10T09:15:02.120Z\twarn\tdb\tapp/a.go:42\tslow", "warning", "slow", {"logger": "db", "caller": "app/a.go:42"}),
    ("2024-03-10T09:15:02.120Z\tINFO\tup\t{broken", "info", "up\t{broken", {}),
    ("I0310 09:15:02.120000    4711 a.cc:42] hi", "info", "hi", {"thread": 4711, "caller": "a.cc:42"}),
    ("F20240310 09:15:02.120000 1 a.cc:42] hi", "critical", "hi", {"thread": 1, "caller": "a.cc:42"}),
    ("2024/03/10 09:15:02.120000 main.go:42: hi", None, "hi", {"caller": "main.go:42"}),
    ("2024/03/10 09:15:02.120000 INFO hi k=v", "info", "hi k=v", {}),
    # Ruby, PHP, Rust
    ("I, [2024-03-10T09:15:02.120000 #4711]  INFO -- : x", "info", "x", {"pid": 4711}),
    ("F, [2024-03-10T09:15:02.120000 #4711] FATAL -- worker: x", "critical", "x", {"pid": 4711, "logger": "worker"}),
    ("A, [2024-03-10T09:15:02.120000 #4711]   ANY -- : x", None, "x", {"pid": 4711}),
    ("[2024-03-10T09:15:02.120+00:00] shop.ERROR: x {} []", "error", "x {} []", {"channel": "shop"}),
    ("[2024-03-10T09:15:02.120Z INFO  app::db] x", "info", "x", {"logger": "app::db"}),
    ("2024-03-10T09:15:02.120Z  INFO app::db: x", "info", "x", {"logger": "app::db"}),
    # Servers
    ("2024-03-10 09:15:02.120 UTC [4711] LOG:  ready", "info", "ready", {"pid": 4711}),
    ("2024-03-10 09:15:02.120 UTC [4711] app@shop ERROR:  no: x", "error", "no: x", {"pid": 4711, "client": "app@shop"}),
    ("2024-03-10T09:15:02.120Z 0 [Warning] [MY-010055] [Server] x", "warning", "x",
     {"thread": 0, "code": "MY-010055", "subsystem": "Server"}),
    ("2024-03-10T09:15:02.120Z 9 [Note] x", "info", "x", {"thread": 9}),
    ("4711:M 10 Mar 2024 09:15:02.120 * Ready", "notice", "Ready", {"pid": 4711, "role": "M"}),
    ("4711:C 10 Mar 2024 09:15:02.120 # oops", "warning", "oops", {"pid": 4711, "role": "C"}),
    ("[Sun Mar 10 09:15:02.120000 2024] [core:error] [pid 7:tid 8] [client 192.0.2.9:5] AH00037: x", "error", "x",
     {"module": "core", "pid": 7, "tid": 8, "client": "192.0.2.9:5", "code": "AH00037"}),
    ("[Sun Mar 10 09:15:02.120000 2024] [proxy:trace3] [pid 7] (111)Connection refused: x", "trace", "x",
     {"module": "proxy", "pid": 7, "error": "(111)Connection refused"}),
    # A stamp and nothing that is clear
    ("2024-03-10 09:15:02.120 terror level nil", None, "terror level nil", {}),
    ("2024-03-10 09:15:02.120 got ERROR from upstream", None, "got ERROR from upstream", {}),
    ("2024-03-10 09:15:02.120 error reading the file", None, "error reading the file", {}),
    ("2024-03-10 09:15:02.120 42 items, 0 errors", None, "42 items, 0 errors", {}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "name", "message", "fields"), STAMPED, ids=[line for line, *_ in STAMPED])
def test_a_line_with_a_stamp(line: str, name: str | None, message: str, fields: dict[str, Any]) -> None:
    found = parsed(line)
    assert (level_of(found), found.message, found.fields) == (name, message, fields)
    assert found.time_us == INSTANT_US + 120_000


@pytest.mark.parametrize(
    ("line", "name", "message", "fields"),
    [
        ("[warn] low disk", "warning", "low disk", {}),
        ("[ERROR]: x", "error", "x", {}),
        ("<info> dhcp: x", "info", "dhcp: x", {}),
        (
            "NOTICE Finished job, failed: false, error: none",
            "notice",
            "Finished job, failed: false, error: none",
            {},
        ),
        ("WARNING:root:disk low", "warning", "disk low", {"logger": "root"}),
        ("CRITICAL:app.db:gone: 1", "critical", "gone: 1", {"logger": "app.db"}),
        (
            'INFO:     192.0.2.1:5000 - "GET / HTTP/1.1" 200',
            "info",
            '192.0.2.1:5000 - "GET / HTTP/1.1" 200',
            {},
        ),
        ("warn: Shop.Db[0]", "warning", "Shop.Db[0]", {}),
        ("fatal: not a repository", "critical", "not a repository", {}),
        ("09:15:02.120 [info] x", "info", "x", {}),
        ("\x1b[33mWARN\x1b[0m slow", "warning", "slow", {}),
        ("ERROR", "error", "", {}),
    ],
)
def test_a_line_with_a_level_alone(line: str, name: str, message: str, fields: dict[str, Any]) -> None:
    found = parsed(line)
    assert (level_of(found), found.message, found.fields) == (name, message, fields)
    assert (found.time_us, found.zone, found.flags) == (None, None, 0)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "terror level nil",
        "plain text: error",
        "Error handling is hard",
        "I saw an error",
        "Information about ERROR",
        "INFORMED decision",
        "\tat com.example.Till.pay(Till.java:42)",
        "Caused by: java.io.IOException: ERROR",
        "java.lang.IllegalStateException: bad",
        "ValueError: ERROR: x",
        "... 12 more",
        "(node:7) Warning: x",
        "198.51.100.7 - - [10/Mar/2024:09:15:02 +0000] \"GET /error HTTP/1.1\" 200 5",
        "level=error msg=x",
    ],
)  # fmt: skip
def test_a_word_of_the_message_is_never_a_level(line: str) -> None:
    assert lines().parse(line) is None


def test_the_details_of_an_error_of_nginx_are_fields() -> None:
    line = (
        '2024/03/10 09:15:02 [error] 7#8: *12 open() "/a" failed (2: No such file, really), client: 192.0.2.9, '
        'server: shop.example.net, request: "GET /a, b HTTP/1.1", upstream: "http://192.0.2.80/a", host: "h"'
    )
    found = parsed(line)
    assert found.fields == {
        "pid": 7,
        "thread": 8,
        "connection": 12,
        "client": "192.0.2.9",
        "server": "shop.example.net",
        "request": "GET /a, b HTTP/1.1",
        "upstream": "http://192.0.2.80/a",
        "host": "h",
    }
    assert (level_of(found), found.time_us) == ("error", INSTANT_US)


def test_a_stamp_that_is_no_time_is_flagged() -> None:
    found = parsed("2024-13-40 99:99:99 ERROR x")
    assert (level_of(found), found.message, found.time_us) == ("error", "x", None)
    assert found.flags & LineFlag.BAD_TIME


def test_an_object_that_is_nested_deeply_stays_in_the_message() -> None:
    nested = '{"a":' * 90_000 + "1" + "}" * 90_000
    found = parsed(f"2024-03-10T09:15:02.120Z\tINFO\tup\t{nested}")
    assert (found.message, found.fields) == (f"up\t{nested}", {})


def test_every_word_that_is_looked_for_is_a_level() -> None:
    words = f"{heads._WORDS}|{heads._CAPITALS}|{heads._POSTGRES}".replace("debug[1-5]?", "debug|debug1")
    words = words.replace("DEBUG[1-5]?", "DEBUG|DEBUG5")
    assert [word for word in words.split("|") if level_of_name(word) is None] == []


head_pieces = st.sampled_from(
    ["2024-03-10 09:15:02,120 ", "Mar 10 09:15:02 ", "[", "]", "INFO", "error", ": ", " - ", "|", "\t", "{", "}", "main", "42", "--- ",
     "I0310 09:15:02.120123 ", "I, [2024-03-10T09:15:02 #4]", "1:M 10 Mar 2024 09:15:02 ", "\x1b[1m", "1#1: ", "] [core:error] "]
)  # fmt: skip


@given(parts=st.lists(head_pieces | st.text(max_size=10), max_size=20))
def test_no_line_raises(parts: list[str]) -> None:
    lines().parse("".join(parts))
