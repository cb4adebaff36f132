"""Lines that a container's engine has wrapped are unwrapped, and pieces of long ones put together; nothing is lost."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.formats import parser_for
from aeolus_sandbox.guest.logs.formats.base import LineParser, ParseContext
from aeolus_sandbox.guest.logs.formats.containers import MAX_MESSAGE_CHARACTERS
from aeolus_sandbox.guest.logs.lines import LEVELS, LineFlag, Parsed

INSTANT_US = 1_710_062_102_000_000  # 2024-03-10 09:15:02 UTC
STAMP = "2024-03-10T09:15:02.120456789Z"


def auto() -> LineParser:
    return parser_for("auto", ParseContext(reference=datetime(2024, 3, 11, tzinfo=UTC)))


def read(parser: LineParser, line: str) -> Parsed:
    parsed = parser.parse(line)
    assert parsed is not None
    return parsed


def cri(text: str, tag: str = "F", stream: str = "stdout") -> str:
    return f"{STAMP} {stream} {tag} {text}"


def docker(text: str, stream: str = "stdout", **others: object) -> str:
    return json.dumps({"log": text, "stream": stream, **others, "time": STAMP}, separators=(",", ":"))


@pytest.mark.parametrize("wrap", [cri, lambda text: docker(text + "\n"), lambda text: docker(text + "\r\n")])
@pytest.mark.parametrize(
    ("inner", "level", "message", "added_us", "fields"),
    [
        ("starting", None, "starting", 120_456, {}),
        ("", None, "", 120_456, {}),
        ("[warn] low disk", "warning", "low disk", 120_456, {}),
        ("2024-03-10 09:15:02,500 ERROR app.db: x", "error", "x", 500_000, {"logger": "app.db"}),
        ('{"level":"error","msg":"x","n":1}', "error", "x", 120_456, {"level": "error", "msg": "x", "n": 1}),
        ('{"level":30,"time":1710062102500,"stream":"own"}', "info", '{"level":30,"time":1710062102500,"stream":"own"}',
         500_000, {"level": 30, "time": 1710062102500}),
        ("level=debug msg=miss", "debug", "miss", 120_456, {"level": "debug", "msg": "miss"}),
        ("<11>Mar 10 09:15:02 h app: x", "error", "x", 0, {"facility": 1, "severity": 3, "host": "h", "app": "app"}),
        ("\tat com.example.Till.pay(Till.java:42)", None, "\tat com.example.Till.pay(Till.java:42)", 120_456, {}),
        ('{"n":12345678901234567890123}', None, '{"n":12345678901234567890123}', 120_456, {"n": 12345678901234567890123}),
    ],
)  # fmt: skip
def test_what_is_inside_is_read_and_the_time_outside_counts_where_it_has_none(
    wrap: object, inner: str, level: str | None, message: str, added_us: int, fields: dict[str, object]
) -> None:
    assert callable(wrap)
    parsed = read(auto(), wrap(inner))
    assert (parsed.level is not None and LEVELS[parsed.level]) == (level or False)
    assert parsed.message == message
    assert parsed.time_us == INSTANT_US + added_us
    assert parsed.fields == fields | {"stream": "stdout"}


@pytest.mark.parametrize("end", ["", " "])
def test_an_empty_line_is_wrapped_with_and_without_a_space(end: str) -> None:
    parsed = read(auto(), f"{STAMP} stderr F{end}")
    assert (parsed.message, parsed.fields) == ("", {"stream": "stderr"})


def test_pieces_are_passed_on_and_their_last_line_has_the_whole() -> None:
    parser = auto()
    first = read(parser, cri('{"level":"warn","msg":"long ', "P"))
    other = read(parser, cri("[error] of the other stream", stream="stderr"))
    second = read(parser, cri("message in ", "P"))
    whole = read(parser, cri('pieces"}'))
    following = read(parser, cri("[info] next"))
    for piece, text in ((first, '{"level":"warn","msg":"long '), (second, "message in ")):
        assert (piece.message, piece.level, piece.flags) == (text, None, LineFlag.INCOMPLETE)
        assert piece.fields == {"stream": "stdout", "partial": True}
        assert piece.time_us == INSTANT_US + 120_456
    assert other.message == "of the other stream"
    assert whole.message == "long message in pieces"
    assert whole.fields == {"level": "warn", "msg": "long message in pieces", "stream": "stdout"}
    assert whole.level == LEVELS.index("warning")
    assert whole.flags == LineFlag.JOINED
    assert (following.message, following.flags) == ("next", 0)


def test_a_text_of_docker_without_its_newline_is_a_piece() -> None:
    parser = auto()
    assert read(parser, docker("[error] half")).flags == LineFlag.INCOMPLETE
    whole = read(parser, docker(" and half\n"))
    assert (whole.message, whole.level, whole.flags) == (
        "half and half",
        LEVELS.index("error"),
        LineFlag.JOINED,
    )


def test_what_docker_adds_is_kept() -> None:
    assert read(auto(), docker("x\n", attrs={"tag": "shop"})).fields == {
        "stream": "stdout",
        "attrs": {"tag": "shop"},
    }


def test_a_message_of_very_many_pieces_is_bounded_and_says_so() -> None:
    parser = auto()
    piece = "x" * 16_384
    for _ in range(2 * MAX_MESSAGE_CHARACTERS // len(piece)):
        assert read(parser, cri(piece, "P")).message == piece
    whole = read(parser, cri("end"))
    assert whole.message == "x" * MAX_MESSAGE_CHARACTERS
    assert whole.flags == LineFlag.JOINED | LineFlag.TRUNCATED
    assert read(parser, cri("next")).message == "next"


@pytest.mark.parametrize(
    "line",
    [
        '{"log":"text of an application","level":"error"}',
        '{"log":5,"stream":"stdout","time":"2024-03-10T09:15:02Z"}',
        '{"log":"x\\n","stream":"other","time":"2024-03-10T09:15:02Z","level":"error"}',
        '{"log":{"level":"error"},"msg":"x"}',
    ],
)
def test_an_object_that_only_looks_like_dockers_is_plain_json(line: str) -> None:
    parsed = read(auto(), line)
    assert parsed.fields is None  # the object itself


def test_what_is_wrapped_many_times_is_unwrapped_once() -> None:
    line = "x"
    for _ in range(500):
        line = cri(line)
    parsed = read(auto(), line)
    assert parsed.fields is not None
    assert parsed.fields["stream"] == "stdout"
    assert parsed.time_us == INSTANT_US + 120_456


@given(
    text=st.text(),
    tags=st.lists(st.sampled_from("FP"), max_size=6),
    stream=st.sampled_from(["stdout", "stderr"]),
)
def test_no_text_inside_raises_or_loses_its_line(text: str, tags: list[str], stream: str) -> None:
    parser = auto()
    for tag in tags:
        assert parser.parse(cri(text, tag, stream)) is not None
        assert parser.parse(docker(text + ("\n" if tag == "F" else ""), stream)) is not None
