"""Lines are sent in batches that are bounded, and in their order."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.batches import EncodedLines
from aeolus_sandbox.guest.logs.frames import MAX_BATCH_BYTES, MAX_BATCH_LINES, MAX_LINE_BYTES
from aeolus_sandbox.guest.logs.lines import LineFlag, LogLine

CONTROLS = "\x01" * MAX_LINE_BYTES


def line(end: int, raw: Any = "x", **values: Any) -> LogLine:
    return LogLine(raw, end - 1, end, **({"fields": msgspec.Raw(b"{}")} | values))


def encoded(lines: list[LogLine]) -> EncodedLines:
    found = EncodedLines()
    for each in lines:
        found.add(each)
    return found


def sent(lines: list[LogLine]) -> list[list[Any]]:
    """Return the lines of the batches, after what holds for every batch was checked."""
    found: list[list[Any]] = []
    for data, count, end in encoded(lines).batches():
        decoded = [msgspec.json.decode(each) for each in data.splitlines()]
        assert len(decoded) == count <= MAX_BATCH_LINES
        assert len(data) <= MAX_BATCH_BYTES
        assert decoded[-1][2] == end
        found += decoded
    return found


def test_no_lines_make_no_batch() -> None:
    assert list(EncodedLines().batches()) == []


@given(count=st.integers(1, 3 * MAX_BATCH_LINES))
def test_all_lines_are_sent_in_their_order(count: int) -> None:
    assert [each[2] for each in sent([line(n + 1) for n in range(count)])] == list(range(1, count + 1))


def test_lines_that_are_long_together_are_sent_apart() -> None:
    lines = [line(n + 1, CONTROLS) for n in range(5)]
    assert len(list(encoded(lines).batches())) == 5
    assert [each[0] for each in sent(lines)] == [CONTROLS] * 5


def test_a_line_that_is_too_long_with_its_fields_goes_without_them() -> None:
    lines = [line(1), line(2, CONTROLS, message=CONTROLS, fields={"m": CONTROLS}, flags=4), line(3)]
    first, long, last = sent(lines)
    assert (first[0], last[0]) == ("x", "x")
    assert (long[0], long[6], long[7], long[8]) == (CONTROLS, "", {}, 4 | LineFlag.FIELDS_OMITTED)


def test_a_long_object_keeps_itself() -> None:
    raw = msgspec.Raw(msgspec.json.encode({"m": "x" * (MAX_LINE_BYTES - 10)}))
    [found] = sent([line(1, raw, message=CONTROLS + CONTROLS, fields=None)])
    assert len(found[0]["m"]) == MAX_LINE_BYTES - 10
    assert (found[6], found[7]) == ("", None)
