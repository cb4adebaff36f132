"""Whatever stands on a line of a JSON file, it is one record, and nothing that is in an object is lost."""

import json
import random
from datetime import UTC, datetime
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.formats.json_lines import MAX_DEPTH, JsonLines
from aeolus_sandbox.guest.logs.lines import LEVELS, LineFlag, Parsed
from tests.unit.logs.linear import LENGTH, LIMIT_S, processor_seconds

MORNING_US = 1_710_062_102_120_000  # 2024-03-10T09:15:02.120Z
NOT_OBJECT = LineFlag.NOT_OBJECT | LineFlag.UNPARSED
TOO_DEEP = LineFlag.TOO_DEEP | LineFlag.UNPARSED


def _parse(line: str) -> Parsed | None:
    return JsonLines(ParseContext(reference=datetime(2024, 3, 11, tzinfo=UTC))).parse(line)


def _object(line: str) -> Parsed:
    parsed = _parse(line)
    assert parsed is not None
    return parsed


def _level(line: str) -> str | None:
    level = _object(line).level
    return None if level is None else LEVELS[level]


@pytest.mark.parametrize("line", ["[1,2]", '"text"', "42", "null", "true", " [1] ", "[" * 100 + "]" * 100])
def test_json_that_is_no_object_is_a_flagged_record(line: str) -> None:
    assert _parse(line) == Parsed(fields={}, flags=NOT_OBJECT)


@pytest.mark.parametrize(
    "line",
    [
        '1 {"a":1} false',
        '{"a":1}{"b":2}',
        "",
        '{"msg":"cut',
        '{"a":NaN}',
        '{"msg":NaN}',
        "plain text: error",
        '{"a":1,}',
        "{a:1}",
    ],
)
def test_what_is_not_json_is_left_to_other_formats(line: str) -> None:
    assert _parse(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "[" * 300 + "]" * 300,
        "[" * 100_000,
        '{"a":' * 5000,
        '{"msg":"\\"","x":' + "[" * 101 + "]" * 101 + "}",
        "[" * 101 + "]" * 101,
    ],
)
def test_json_that_is_too_deep_is_a_flagged_record(line: str) -> None:
    assert _parse(line) == Parsed(fields={}, flags=TOO_DEEP)


def test_brackets_that_do_not_nest_or_are_text_are_not_deep() -> None:
    assert _object(json.dumps({"msg": "ok", "list": [[] for _ in range(500)]})).message == "ok"
    assert _object(json.dumps({"msg": '[{"' * 500})).message == '[{"' * 500
    assert _object('{"msg":"ok","x":' + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1) + "}").message == "ok"


def test_an_object_stands_for_itself_as_the_fields() -> None:
    assert _object('{"level":"info","msg":"ok"}') == Parsed("ok", LEVELS.index("info"), is_object=True)
    assert _object('{"n":12345678901234567890}') == Parsed(is_object=True)
    assert _level('{"level":"info","level":"error"}') == "error", "the last of two wins"
    assert _object('{"level":{"name":"warn"},"msg":["a"]}') == Parsed(
        '["a"]', LEVELS.index("warning"), is_object=True
    )


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ('{"level":30,"time":1710062102120,"msg":"error budget ok"}', "info"),
        ('{"level":50}', "error"),
        ('{"level":60}', "critical"),
        ('{"level":35}', "info"),
        ('{"level":"30"}', "info"),
        ('{"levelno":30,"levelname":"WARNING"}', "warning"),
        ('{"levelno":30}', "warning"),
        ('{"version":"1.1","host":"h","short_message":"m","level":3}', "error"),
        ('{"version":"1.1","host":"h","short_message":"m","level":30}', None),
        *[(f'{{"level":"{name}"}}', "warning") for name in ("warn", "WARN", "warning", "W")],
        ('{"severity":"NOTICE"}', "notice"),
        ('{"log":{"level":"error"}}', "error"),
        ('{"log.level":"debug"}', "debug"),
        ('{"@level":"trace"}', "trace"),
        ('{"lvl":"eror"}', None),
        ('{"level":"unheard-of","severity":"error"}', "error"),
        ('{"level":{"name":["x"]}}', None),
        ('{"level":"dpanic"}', "critical"),
        ('{"PRIORITY":"3","MESSAGE":"all is fine"}', "error"),
        ('{"PRIORITY":"0"}', "emergency"),
        ('{"level":true}', None),
        ('{"level":null,"msg":"fatal error"}', None),
        ('{"level":99999999999999999999999999}', None),
        ('{"msg":"error"}', None),
    ],
)
def test_the_level_is_what_a_key_says_and_never_a_word_of_the_message(line: str, level: str | None) -> None:
    assert _level(line) == level


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"msg":"a","message":"b"}', "a"),
        ('{"message":"b","event":"c"}', "b"),
        ('{"short_message":"m"}', "m"),
        ('{"MESSAGE":"m"}', "m"),
        ('{"MESSAGE":[104,195,169,255]}', "hé\ufffd"),
        ('{"MESSAGE":[104,"x"]}', '[104,"x"]'),
        ('{"MESSAGE":[104,256]}', "[104,256]"),
        ('{"event":"user signed in"}', "user signed in"),
        ('{"log":"two words\\n","stream":"stderr","time":"2024-03-10T09:15:02.120Z"}', "two words"),
        ('{"textPayload":"t"}', "t"),
        ('{"@message":"at"}', "at"),
        ('{"error":"e"}', "e"),
        ('{"err":{"type":"Error","message":"no route","stack":"..."}}', "no route"),
        ('{"err":{"code":7}}', '{"code":7}'),
        ('{"msg":12345678901234567890123}', "12345678901234567890123"),
        ('{"msg":{"é":[1.5,null,true]}}', '{"é":[1.5,null,true]}'),
        ('{"msg":""}', ""),
        ('{"msg":null,"message":"b"}', "b"),
        ('{"x":1}', None),
    ],
)
def test_the_message_is_the_text_of_the_usual_keys(line: str, message: str | None) -> None:
    assert _object(line).message == message


@pytest.mark.parametrize(
    "text",
    [
        *(
            f'"{key}":"2024-03-10T09:15:02.120Z"'
            for key in ("time", "ts", "timestamp", "@timestamp", "datetime")
        ),
        *(
            '"date":"2024-03-10T09:15:02.120Z"',
            '"eventTime":"2024-03-10T14:45:02.120+05:30"',
            '"ts":1710062102.120',
        ),
        *('"time":1710062102120', '"time":1710062102120000000', '"time":"1710062102120"'),
        '"__REALTIME_TIMESTAMP":"1710062102120000"',
        '"instant":{"epochSecond":1710062102,"nanoOfSecond":120000000}',
        '"time":0.013,"ts":"2024-03-10T09:15:02.120Z"',
        '"time":"a while ago","ts":null,"timestamp":1710062102120',
    ],
)
def test_the_time_is_the_first_good_stamp_of_the_usual_keys(text: str) -> None:
    parsed = _object(f'{{"a":1,{text}}}')
    assert (parsed.time_us, parsed.flags) == (MORNING_US, 0)


@pytest.mark.parametrize(
    "value",
    [
        *(
            '"2024-13-40T99:99:99Z"',
            '"2024-03-10T09:15:02+99:00"',
            "0",
            "-1",
            "1e400",
            '"0"',
            '"1e400"',
            "true",
            "[]",
            "{}",
        ),
        *('{"epochSecond":1e400}', '{"epochSecond":1710062102,"nanoOfSecond":1000000000000000000000}', '""'),
    ],
)
def test_a_bad_time_is_flagged_and_the_line_kept(value: str) -> None:
    parsed = _object(f'{{"level":"warn","msg":"kept","time":{value}}}')
    assert (parsed.time_us, parsed.zone, parsed.flags) == (None, None, LineFlag.BAD_TIME)
    assert (parsed.message, parsed.level) == ("kept", LEVELS.index("warning"))


def test_a_number_out_of_range_keeps_its_text() -> None:
    assert _object('{"msg":"m","time":1e400,"n":7}').fields == {"msg": "m", "time": "1e400", "n": 7}


@pytest.mark.parametrize("half", [r"\ud83d", r"\ude00", r"\ud83d\ud83d", r"\uD83Dx"])
def test_half_a_pair_of_surrogates_is_replaced(half: str) -> None:
    """A logger that cuts a text in the middle of an emoji writes one."""
    parsed = _object(f'{{"msg":"cut {half}","level":"warn","ok":"\\ud83d\\ude00","path":"\\\\ud83d"}}')
    assert parsed.message is not None
    assert parsed.message.startswith("cut \ufffd")
    assert parsed.fields == {"msg": parsed.message, "level": "warn", "ok": "😀", "path": r"\ud83d"}
    msgspec.json.encode(parsed.fields)


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_keys = st.sampled_from(
    [
        "level",
        "msg",
        "message",
        "time",
        "ts",
        "timestamp",
        "severity",
        "lvl",
        "levelno",
        "log",
        "log.level",
        "event",
        "err",
        "instant",
        "MESSAGE",
        "PRIORITY",
    ]
)
_objects = st.dictionaries(_keys | st.text(max_size=5), _json | st.integers(0, 70), max_size=6)


@given(value=_objects)
def test_any_object_is_read_without_loss(value: dict[str, object]) -> None:
    line = json.dumps(value)
    parsed = _object(line)
    assert not parsed.flags & LineFlag.UNPARSED
    assert (json.loads(line) if parsed.fields is None else parsed.fields) == json.loads(line)


@given(level=st.sampled_from(LEVELS), message=st.text(), time_us=st.integers(10**14, 10**17 - 1))
def test_level_message_and_time_are_read_back(level: str, message: str, time_us: int) -> None:
    parsed = _object(
        json.dumps({"level": level, "time": time_us, "x": [message], "msg": message}, ensure_ascii=False)
    )
    assert parsed == Parsed(message, LEVELS.index(level), time_us, is_object=True)


@given(value=_objects, cuts=st.lists(st.tuples(st.integers(0, 200), st.text(max_size=2)), max_size=4))
def test_no_spoilt_line_raises(value: dict[str, object], cuts: list[tuple[int, str]]) -> None:
    line = json.dumps(value)
    for position, text in cuts:
        line = line[:position] + text + line[position + 1 :]
    _parse(line)


@given(line=st.text() | st.text('{}[]\\",:u0189adefD 1.-', max_size=60))
def test_no_text_raises(line: str) -> None:
    _parse(line)


def test_no_random_bytes_raise() -> None:
    random_bytes = random.Random(34)
    parser = JsonLines(ParseContext())
    for _ in range(10_000):
        parser.parse(random_bytes.randbytes(200).decode("utf-8", "replace"))
    assert parser.parse("\ud800") is None


@pytest.mark.parametrize(
    "piece", ["[", '{"', "\\", '"', '\\"', '"\\', "[]", "\\ud83d", "9", '{"a":', '["', '"a":1,']
)
def test_time_is_in_proportion_to_the_length(piece: str) -> None:
    parser = JsonLines(ParseContext())
    for begin in ("", "[", '{"msg":"', '{"level":', '{"time":"', '{"log":"'):
        line = begin + piece * (LENGTH // len(piece))
        assert processor_seconds(partial(parser.parse, line)) < LIMIT_S
