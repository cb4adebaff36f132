"""Pairs of keys and values are read as they were meant, and text that is none of them harms nothing."""

import random
from datetime import UTC, datetime
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.formats.logfmt import KeyValueLines
from aeolus_sandbox.guest.logs.lines import LEVELS, LineFlag, Parsed
from tests.unit.logs.linear import LENGTH, LIMIT_S, processor_seconds

MORNING_US = 1_710_062_102_000_000  # 2024-03-10T09:15:02Z


def _parse(line: str) -> Parsed | None:
    return KeyValueLines(ParseContext(reference=datetime(2024, 3, 11, tzinfo=UTC))).parse(line)


def _record(line: str) -> Parsed:
    parsed = _parse(line)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            r'ts=2024-03-10T09:15:02Z lvl=info msg="he said \"hi\"" tags_0=task=mock',
            {"ts": "2024-03-10T09:15:02Z", "lvl": "info", "msg": 'he said "hi"', "tags_0": "task=mock"},
        ),
        ('a="" b= c d=1', {"a": "", "b": "", "c": None, "d": "1"}),
        ("""req='"GET /x HTTP/1.1"' s=200""", {"req": '"GET /x HTTP/1.1"', "s": "200"}),
        (r'q="line1\nline2" p=C:\x', {"q": "line1\nline2", "p": r"C:\x"}),
        ("=x y=1", {"y": "1"}),
        ("url=http://e.example/?a=1&b=2 n=3", {"url": "http://e.example/?a=1&b=2", "n": "3"}),
        ("k=v k=w", {"k": "w"}),
        ("emoji=😀 café=oui", {"emoji": "😀", "café": "oui"}),
        ('msg = "spaced"', {"msg": "spaced"}),
        ("  a=1\t b=2  ", {"a": "1", "b": "2"}),
        ("who='tis n=1", {"who": "'tis", "n": "1"}),
        (r'u="\u00e9\t\\n\A\ud83d" v=1', {"u": "é\t\\n\\A\ufffd", "v": "1"}),
        ("a='' b=1", {"a": "", "b": "1"}),
    ],
)
def test_pairs_become_fields(line: str, fields: dict[str, str | None]) -> None:
    assert _record(line).fields == fields


@pytest.mark.parametrize("line", ['msg="never closed level=error', 'a=1 b="', 'a=1 b="x\\"', 'a=1 b="\\'])
def test_a_quote_without_its_end_is_a_flagged_record(line: str) -> None:
    assert _parse(line) == Parsed(fields={}, flags=LineFlag.UNPARSED)


@pytest.mark.parametrize("line", ["", " ", "no pairs here", "=", "= =", "=x", '"quoted"', "a b c"])
def test_a_line_without_pairs_is_left_to_other_formats(line: str) -> None:
    assert _parse(line) is None


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("level=dpanic", "critical"),
        ("lvl=warn", "warning"),
        ("severity=NOTICE", "notice"),
        ("level=30", "info"),
        ("level=3", "error"),
        ("lvl=eror", None),
        ("level severity=error", "error"),
        ('msg="fatal error"', None),
    ],
)
def test_the_level_is_what_a_key_says(line: str, level: str | None) -> None:
    found = _record(line).level
    assert (None if found is None else LEVELS[found]) == level


def test_message_and_time_are_those_of_the_usual_keys() -> None:
    parsed = _record('time=12ms ts=2024-03-10T09:15:02Z level=info msg="all done" error=none')
    assert (parsed.message, parsed.time_us, parsed.zone, parsed.flags) == ("all done", MORNING_US, "Z", 0)
    assert _record("t=1710062102 event=started").time_us == MORNING_US
    assert _record("ts=2024-03-10T09:15:02 a=1").flags == LineFlag.ZONE_ASSUMED
    assert _record("ts=2024-13-40T99:99:99Z msg=kept").flags == LineFlag.BAD_TIME
    assert _record("ts=1e400 msg=kept").message == "kept"
    assert _record("error=refused").message == "refused"
    assert _record("a=1").message is None


_keys = st.text(
    st.characters(codec="utf-8", exclude_characters='="', exclude_categories=["Z", "C"]),
    min_size=1,
    max_size=8,
)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@given(
    fields=st.dictionaries(_keys, st.text(st.characters(codec="utf-8"), max_size=12), min_size=1, max_size=6)
)
def test_fields_are_read_back(fields: dict[str, str]) -> None:
    line = " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())
    assert _record(line).fields == fields


_spoilt = st.text() | st.text("a=' \"\\u0d8\n", max_size=60)


@given(line=_spoilt)
def test_no_text_raises_and_what_is_read_can_be_sent(line: str) -> None:
    parsed = _parse(line)
    if parsed is not None:
        msgspec.json.encode(parsed)


def test_no_random_bytes_raise() -> None:
    random_bytes = random.Random(38)
    parser = KeyValueLines(ParseContext())
    for _ in range(10_000):
        parser.parse(random_bytes.randbytes(200).decode("utf-8", "replace"))
        parser.parse("".join(random_bytes.choices("ab='\" \\\t", k=200)))


@pytest.mark.parametrize(
    "piece",
    [
        "=",
        "a",
        " ",
        "a=",
        'a="',
        "a='",
        '"',
        "\\",
        '\\"',
        '"\\',
        "'",
        'a="\\u12" ',
        "a=b ",
        " =",
        "= ",
        "a = ",
    ],
)
def test_time_is_in_proportion_to_the_length(piece: str) -> None:
    parser = KeyValueLines(ParseContext())
    for begin in ("", 'a="', "a='", "level="):
        line = begin + piece * (LENGTH // len(piece))
        assert processor_seconds(partial(parser.parse, line)) < LIMIT_S
