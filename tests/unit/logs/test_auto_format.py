"""A line's format is found for each line, whatever the lines before it were."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.fields import fields_of
from aeolus_sandbox.guest.logs.formats import FORMATS, parser_for
from aeolus_sandbox.guest.logs.formats.auto import AutoLines
from aeolus_sandbox.guest.logs.formats.base import LineParser, ParseContext
from aeolus_sandbox.guest.logs.formats.text import TextLines
from aeolus_sandbox.guest.logs.lines import LEVELS, LineFlag, Parsed
from tests.unit.logs.linear import LIMIT_S, long_lines, processor_seconds

CONTEXT = ParseContext(reference=datetime(2024, 3, 11, tzinfo=UTC))

COMBINED = [
    r'2001:db8::7f:1 - - [10/Mar/2024:09:15:02 +0000] "GET /a?q=1 HTTP/2.0" 200 512 "-" "Tablet 10\" (Linux)"',
    r'fe80::1%eth0 - ann [10/Mar/2024:09:15:02 -0800] "GET / HTTP/1.1" 304 - "https://e.example/\"x\"" ""',
    r'192.0.2.9 - - [10/Mar/2024:09:15:02 +0530] "\x16\x03\x01\x02" 400 226 "-" "-"',
    '192.0.2.9 - - [10/Mar/2024:09:15:02 +0000] "-" 408 - "-" "-"',
]
COMMON = '192.0.2.9 - - [10/Mar/2024:09:15:02 +0000] "GET /a b c HTTP/1.1" 404 10'

BY_FORMAT = {
    "json": ['{"level":"warn","msg":"x"}', "{}", '{"level":30,"time":1710062102120,"msg":"error budget ok"}'],
    "access": [
        *COMBINED,
        COMMON,
        'host.example.net - - [10/Mar/2024:09:15:02 +0000] "OPTIONS * HTTP/1.0" 200 126',
    ],
    "syslog": [
        "<11>Mar 10 09:15:02 h app: x",
        "<14>1 - - - - - -",
        "Mar 10 09:15:02 web-1 sshd[42]: Accepted publickey",
        "Mar  1 09:15:02 web-1 last message repeated 3 times",
        "2024-03-10T09:15:02.120123+00:00 web-1 systemd[1]: Started",
        "*Mar 10 09:15:02.120: %LINK-3-UPDOWN: x",
    ],
    "text": [
        "2024-03-10 09:15:02,120 WARNING app.db: pool exhausted",
        "2024-03-10T09:15:02.120Z INFO app.db: ready",
        "[warn] low disk",
        "NOTICE Finished job, failed: false, error: none",
        "2024/03/10 09:15:02 [error] 7#7: x",
        "[Sun Mar 10 09:15:02 2024] [core:error] [pid 7] x",
        "I0310 09:15:02.120123 1 a.go:7] x",
        "2024-03-10 09:15:02 terror level nil",
        "<info> dhcp: x",
    ],
    "structured": ["level=info msg=x", "ts=2024-03-10T09:15:02Z lvl=info", 'msg = "spaced"', "=x y=1"],
}
LINES = [(name, line) for name, lines in BY_FORMAT.items() for line in lines]
NONE = [
    "",
    " ",
    "plain words",
    "terror level nil",
    "\tat com.example.Till.pay(Till.java:42)",
    "Caused by: java.io.IOException: x",
    "    total = rows[key]",
    "ValueError: bad total",
    "... 12 more",
    "<192>Mar 10 09:15:02 h app: x",
    '{"msg":"cut',
]


@pytest.mark.parametrize(("name", "line"), LINES, ids=[line for _, line in LINES])
def test_the_format_does_not_depend_on_the_lines_before(name: str, line: str) -> None:
    for _, before in [("", ""), *LINES]:
        auto = AutoLines(CONTEXT)
        auto.parse(before)
        alone = AutoLines(CONTEXT)
        assert auto.parse(line) == alone.parse(line)
        assert auto.format == alone.format == name


@pytest.mark.parametrize("line", NONE)
def test_a_line_of_no_format_is_none_and_the_next_is_read_again(line: str) -> None:
    auto = AutoLines(CONTEXT)
    for _, other in LINES:
        assert auto.parse(other) is not None
        assert auto.parse(line) is None


@pytest.mark.parametrize("line", ["[1,2]", '"text"', "42", "null", "[" * 100_000])
def test_json_that_is_no_object_is_flagged(line: str) -> None:
    parsed = AutoLines(CONTEXT).parse(line)
    assert parsed is not None
    assert parsed.flags & (LineFlag.NOT_OBJECT | LineFlag.TOO_DEEP)
    assert (parsed.level, parsed.fields) == (None, {})


def test_access_lines_are_combined_where_they_can_be_and_common_where_not() -> None:
    auto = AutoLines(CONTEXT)
    for line in [*COMBINED, COMMON, *COMBINED]:
        parsed = auto.parse(line)
        assert parsed is not None
        assert ("user_agent" in fields_of(parsed, line)) == (line is not COMMON)


def test_pairs_behind_a_stamp_are_read() -> None:
    parsed = AutoLines(CONTEXT).parse('2024/03/10 09:15:02 level=error msg="cannot pay" order=9')
    assert parsed is not None
    assert (parsed.level, parsed.message) == (LEVELS.index("error"), "cannot pay")
    assert parsed.time_us == 1_710_062_102_000_000
    assert parsed.fields == {"level": "error", "msg": "cannot pay", "order": "9"}


def test_in_a_file_of_one_format_each_line_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    parse = TextLines.parse

    def counted(self: TextLines, line: str) -> Parsed | None:
        tried.append(line)
        return parse(self, line)

    monkeypatch.setattr(TextLines, "parse", counted)
    auto = AutoLines(CONTEXT)
    for _ in range(3):
        auto.parse(COMBINED[0])
        auto.parse('{"level":"info"}')
    assert tried == []
    for _ in range(3):
        auto.parse("2024-03-10 09:15:02,120 INFO app.db: x")
    assert len(tried) == 3


def test_there_is_a_parser_for_every_format_and_for_no_other() -> None:
    assert list(FORMATS) == sorted(FORMATS)
    for name in FORMATS:
        parser_for(name, CONTEXT).parse("x")
    with pytest.raises(ValueError, match="no format 'xml'"):
        parser_for("xml", CONTEXT)


def test_raw_makes_nothing_of_a_line() -> None:
    assert parser_for("raw", CONTEXT).parse('{"level":"error"}') == Parsed()


def parsers() -> dict[str, LineParser]:
    return {name: parser_for(name, CONTEXT) for name in FORMATS}


pieces = (
    st.sampled_from([line for _, line in LINES])
    | st.sampled_from(list('[]{}"\\=:<>|, \t\r\x00\x1b'))
    | st.text(max_size=20)
)


@settings(max_examples=200)
@given(lines=st.lists(st.lists(pieces, max_size=4).map("".join), max_size=6))
def test_no_format_raises_on_any_line(lines: list[str]) -> None:
    for parser in parsers().values():
        for line in lines:
            parser.parse(line)


@settings(max_examples=200)
@given(data=st.binary(max_size=200))
def test_no_format_raises_on_any_bytes(data: bytes) -> None:
    for parser in parsers().values():
        parser.parse(data.decode("utf-8", "replace"))


def test_every_format_takes_linear_time() -> None:
    slow = [
        (name, line[:100])
        for line in long_lines()
        for name, parser in parsers().items()
        if processor_seconds(lambda parser=parser, line=line: parser.parse(line)) > LIMIT_S  # type: ignore[misc]
    ]
    assert slow == []
