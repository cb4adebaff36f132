"""Lines are sent in batches that are bounded, and in their order."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.batches import ITS_OWN_FIELDS, NO_FIELDS, OutgoingLines
from aeolus_sandbox.guest.logs.frames import MAX_BATCH_LINES, MAX_LINE_BYTES
from aeolus_sandbox.guest.logs.lines import LineFlag
from tests.unit.logs.sent_lines import SentLine, sent_lines

CONTROLS = "\x01" * MAX_LINE_BYTES


def outgoing(*lines: dict[str, Any]) -> OutgoingLines:
    found = OutgoingLines()
    for number, line in enumerate(lines):
        usual: dict[str, Any] = {"text": b"x", "start": number, "end": number + 1}
        found.add(**(usual | line))
    return found


def sent(*lines: dict[str, Any]) -> list[SentLine]:
    return sent_lines(outgoing(*lines))


def test_no_lines_make_no_batch() -> None:
    assert list(OutgoingLines().batches()) == []


@given(count=st.integers(1, 3 * MAX_BATCH_LINES))
def test_all_lines_are_sent_in_their_order(count: int) -> None:
    assert [line.end for line in sent(*[{}] * count)] == list(range(1, count + 1))


optional = st.none() | st.integers(0, 3)
lines = st.fixed_dictionaries(
    {
        "text": st.binary(max_size=5).filter(lambda text: b"\n" not in text),
        "start": st.integers(0, 3),
        "end": st.integers(0, 3),
        "level": optional,
        "time_us": optional,
        "zone": st.sampled_from([None, "Z", "+01:00"]),
        "message": st.none() | st.text(max_size=3),
        "fields": st.sampled_from([NO_FIELDS, ITS_OWN_FIELDS, msgspec.Raw(b'{"a":1}')]),
        "flags": st.sampled_from([0, 1, 4]),
        "length": optional,
    }
)


@given(given_lines=st.lists(lines, max_size=6), joined=st.booleans())
def test_what_is_sent_of_a_line_is_what_was_added(given_lines: list[dict[str, Any]], joined: bool) -> None:
    if joined and given_lines:
        given_lines[0] |= {"text": b"a\n\nb", "flags": int(LineFlag.JOINED)}
    found = [msgspec.structs.asdict(line) for line in sent(*given_lines)]
    assert found == [line | {"fields": msgspec.json.decode(line["fields"])} for line in given_lines]


def test_lines_that_are_long_together_are_sent_apart() -> None:
    messages = [{"message": CONTROLS}] * 5
    assert len(list(outgoing(*messages).batches())) == 5
    assert [line.message for line in sent(*messages)] == [CONTROLS] * 5


def test_a_line_that_is_long_is_sent_whole_where_it_fits() -> None:
    text = "x" * MAX_LINE_BYTES
    fields = msgspec.Raw(msgspec.json.encode({"m": text, "n": text}))
    [line] = sent({"text": text.encode(), "message": text, "fields": fields})
    assert (line.message, line.fields["n"], line.flags) == (text, text, 0)


def test_a_line_that_is_too_long_with_its_fields_goes_without_them() -> None:
    fields = msgspec.Raw(msgspec.json.encode({"m": CONTROLS}))
    long = {"text": CONTROLS.encode(), "message": CONTROLS, "fields": fields, "flags": 4}
    first, found, last = sent({}, long, {})
    assert (first.text, last.text) == (b"x", b"x")
    assert (found.text, found.message, found.fields) == (CONTROLS.encode(), "", {})
    assert found.flags == 4 | LineFlag.FIELDS_OMITTED


def test_a_long_object_keeps_itself() -> None:
    text = msgspec.json.encode({"m": "x" * (MAX_LINE_BYTES - 10)})
    [found] = sent({"text": text, "message": CONTROLS + CONTROLS, "fields": ITS_OWN_FIELDS})
    assert (found.text, found.message, found.fields) == (text, "", None)
