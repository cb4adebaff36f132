"""A batch of lines is checked when it is taken apart, and is then what the guest has sent."""

from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.errors import GuestProtocolError
from aeolus_sandbox.guest.logs.batches import ITS_OWN_FIELDS, OutgoingLines
from aeolus_sandbox.guest.logs.lines import LEVELS, LineFlag
from aeolus_sandbox.streaming.chunks import ChunkBatch
from aeolus_sandbox.tools.log_tailer import LogChunk, LogFlag, LogLevel
from aeolus_sandbox.tools.log_tailer.batches import LogCodec, batch_of
from aeolus_sandbox.tools.log_tailer.replies import EPOCH

CODEC = LogCodec()


def line(
    text: bytes = b"x", *, fields: object = None, start: int = 0, end: int = 1, **values: Any
) -> dict[str, Any]:
    """Return a line; without fields, it is its own."""
    raw = ITS_OWN_FIELDS if fields is None else msgspec.Raw(msgspec.json.encode(fields))
    return {"text": text, "start": start, "end": end, "fields": raw} | values


def sent(*lines: dict[str, Any]) -> bytes:
    """Return lines as the guest sends them."""
    outgoing = OutgoingLines()
    for each in lines:
        outgoing.add(**each)
    [(body, _, _)] = outgoing.batches()
    return body


def made(body: bytes, *, count: int, file: str = "/f", first: int = 1) -> ChunkBatch:
    return batch_of(file, body, count=count, first=first)


def decoded(*lines: dict[str, Any], start: int = 0, file: str = "/f", first: int = 1) -> list[LogChunk]:
    batch = made(sent(*lines), count=len(lines), file=file, first=first)
    return list(CODEC.decode_batch(batch.tag, batch.payload, start))


def test_a_text_line_is_what_was_read_out_of_it() -> None:
    [chunk] = decoded(
        line(b"raw", fields={"a": 1}, message="m", level=5, time_us=1_710_062_102_120_000, zone="Z",
             start=10, end=14, flags=1 | 256, length=70_000),
        file="/var/log/ü.log", first=41,
    )  # fmt: skip
    assert chunk.model_dump(mode="json") == {
        "raw": "raw",
        "message": "m",
        "level": "error",
        "timestamp": "2024-03-10T09:15:02.120000Z",
        "zone": "Z",
        "fields": {"a": 1},
        "file": "/var/log/ü.log",
        "offset": 10,
        "end_offset": 14,
        "sequence": 41,
        "flags": ["truncated", "zone_assumed"],
        "length": 70_000,
        "notice": None,
    }


def test_an_object_line_is_its_own_fields_as_it_stands_in_the_file() -> None:
    raw = b'{ "msg" : "\xc3\xa9\\u00e9", "n":12345678901234567890123 }'
    [chunk] = decoded(line(raw, level=2, message="m"))
    assert chunk.raw == raw.decode()
    assert dict(chunk.fields) == {"msg": "éé", "n": 12345678901234567890123}
    assert (chunk.message, chunk.level, chunk.flags) == ("m", LogLevel.INFO, ())


def test_a_line_without_a_message_says_all_of_it() -> None:
    text, structured = decoded(line(b"all", fields={}), line(b'{"a":1}'))
    assert (text.message, structured.message) == ("all", '{"a":1}')


texts = st.one_of(
    st.text(max_size=30).map(lambda text: text.replace("\n", " ").encode()),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3).map(msgspec.json.encode),
    st.binary(max_size=12).map(lambda text: text.replace(b"\n", b"")),
)  # fmt: skip


@given(
    texts=st.lists(texts, min_size=1, max_size=20),
    joined=st.booleans(),
    start=st.integers(0, 2**40),
    first=st.integers(1, 2**40),
)
def test_every_chunk_is_a_line_and_every_span_its_bytes(
    texts: list[bytes], joined: bool, start: int, first: int
) -> None:
    if joined:
        texts[0] += b"\n\nand more"
    lines = [line(text, flags=int(LineFlag.JOINED) * joined) for text in texts]
    batch = made(sent(*lines), count=len(lines), file="/f\n", first=first)
    chunks = CODEC.decode_batch(batch.tag, batch.payload, start)
    assert [chunk.sequence for chunk in chunks] == list(range(first, first + len(texts)))
    at = start
    for chunk, text in zip(chunks, texts, strict=True):
        assert chunk.span.start == at  # without a gap: nothing counts as dropped
        at = chunk.span.end
        assert batch.payload[chunk.span.start - start : at - start].endswith(text + b"\n")
        assert chunk.raw == text.decode("utf-8", "replace")
        assert chunk.file == "/f\n"
    assert at == start + len(batch.payload)


@given(parts=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_chunks_that_are_asked_for_in_parts_are_the_same(parts: list[int]) -> None:
    lines = [
        line(b"%d" % n, start=3 * n, end=3 * n + 3, level=n % 3, zone=("Z", None)[n % 2]) for n in range(sum(parts))
    ]  # fmt: skip
    batch = made(sent(*lines), count=len(lines))
    chunks = CODEC.decode_batch(batch.tag, batch.payload, 0)
    found, at = [], 0
    for size in parts:
        found += chunks[at : at + size]
        at += size
    assert [chunk.model_dump() for chunk in found] == [chunk.model_dump() for chunk in chunks]
    assert [chunk.sequence for chunk in chunks[::-1]] == list(range(len(lines), 0, -1))
    assert chunks[-1].sequence == len(lines)


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_levels_travel_by_their_place(level: int) -> None:
    [chunk] = decoded(line(fields={}, level=level))
    assert chunk.level is not None
    assert (chunk.level.value, chunk.level.severity) == (LEVELS[level], level)


@pytest.mark.parametrize("time_us", [-62_135_596_800_000_000, -1, 0, 1, 253_402_300_799_999_999])
def test_times_are_exact(time_us: int) -> None:
    [chunk] = decoded(line(fields={}, time_us=time_us))
    assert chunk.timestamp is not None
    assert (chunk.timestamp - EPOCH) // timedelta(microseconds=1) == time_us


def test_neighbours_of_one_time_and_of_none_are_told_apart() -> None:
    chunks = decoded(*(line(fields={}, time_us=at) for at in (None, 5, 5, None, 0, None)))
    assert [chunk.timestamp and chunk.timestamp.microsecond for chunk in chunks] == [
        None,
        5,
        5,
        None,
        0,
        None,
    ]


GOOD: Final[list[Any]] = [[1], [0], [None], [None], [None], [None], [{}], [0], [None], []]


def table(place: int, column: object) -> bytes:
    """Return what is sent of one line `x`, with a column in the place of a good one."""
    return msgspec.json.encode([*GOOD[:place], column, *GOOD[place + 1 :]]) + b"\nx\n"


WRONG: Final[list[Any]] = [[], [0, 0], {}, None, 7, ["no", "no"]]


@pytest.mark.parametrize(
    ("place", "column"),
    [
        *((place, column) for place in range(9) for column in WRONG),
        (0, [-1]), (0, [2**64]), (0, [1.5]), (0, [None]), (1, [-1]), (2, [9]), (2, [-1]), (2, [True]),
        (3, [253402300800000000]), (3, ["soon"]), (4, [7]), (4, ["z" * 65]), (5, [7]), (7, [4096]), (7, [-1]),
        (7, [None]), (8, [-1]), (9, [2]), (9, [0]), (9, [-1]), (9, [1, 1]), (9, [2**63 - 1]), (9, None),
    ],
)  # fmt: skip
def test_a_table_that_no_guest_of_ours_sends_is_refused(place: int, column: object) -> None:
    with pytest.raises(GuestProtocolError):
        CODEC.decode_batch(1, made(table(place, column), count=1).payload, 0)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\n", b"{}\nx\n", b"[]\nx\n", b"null\nx\n", table(0, [1])[:-1], table(0, [1]) + b"y\n", table(0, [1]) + b"y",
        table(0, [1]).replace(b"x\n", b""), b"[" * 100_000 + b"\nx\n", b"\xff\nx\n", msgspec.json.encode([*GOOD, 1]) + b"\nx\n",
        table(5, ["z"]).replace(b'"z"', b'"\\ud800"'), table(6, [{"a": 1}]).replace(b'{"a":1}', b'{"a":}'),
    ],
)  # fmt: skip
def test_a_body_that_no_guest_of_ours_sends_is_refused(body: bytes) -> None:
    with pytest.raises(GuestProtocolError):
        CODEC.decode_batch(1, made(body, count=1).payload, 0)


@pytest.mark.parametrize("fields", [[], 7, "no reader", True, [1]])
def test_fields_that_are_none_are_none(fields: object) -> None:
    for lines in ([line(fields=fields)], [line(fields=fields), line(fields={"a": 1})]):
        assert dict(decoded(*lines)[0].fields) == {}


@given(data=st.binary(max_size=80), place=st.integers(0, 9))
def test_whatever_comes_is_taken_apart_or_refused(data: bytes, place: int) -> None:
    good = [msgspec.json.encode(column) for column in GOOD]
    mutated = b"[" + b",".join([*good[:place], data, *good[place + 1 :]]) + b"]\nx\n"
    inside = table(0, [1]).replace(b"x", data)
    for body in (data, mutated, inside, data + b"\n" + data):
        try:
            chunks = CODEC.decode_batch(1, made(body, count=1).payload, 0)
        except GuestProtocolError:
            continue
        for chunk in chunks:
            chunk.model_dump_json()
            assert isinstance(dict(chunk.fields), dict)


def test_a_chunk_that_stands_alone_is_encoded_and_decoded() -> None:
    [chunk] = decoded(line(fields={"a": [1]}, flags=64))
    again = CODEC.decode(*CODEC.encode(chunk))
    assert again.model_dump() == chunk.model_dump()
    assert again.flags == (LogFlag.TOO_DEEP,)
