"""A batch of lines is checked when it is taken apart, and is then what the guest has sent."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.errors import GuestProtocolError
from aeolus_sandbox.guest.logs.lines import LEVELS, LogLine
from aeolus_sandbox.streaming.chunks import ChunkBatch
from aeolus_sandbox.tools.log_tailer import LogChunk, LogFlag, LogLevel
from aeolus_sandbox.tools.log_tailer.batches import LogCodec, batch_of
from aeolus_sandbox.tools.log_tailer.replies import EPOCH

CODEC = LogCodec()


def encoded(raw: object, *, fields: object = None, **values: Any) -> bytes:
    """Return a line as the guest sends it."""
    return msgspec.json.encode(
        LogLine(
            raw=msgspec.Raw(msgspec.json.encode(raw)),
            fields=None if fields is None else msgspec.Raw(msgspec.json.encode(fields)),
            **({"start": 0, "end": 1} | values),
        )
    )


def made(*lines: bytes, file: str = "/f", first: int = 1) -> ChunkBatch:
    return batch_of(file, b"".join(line + b"\n" for line in lines), count=len(lines), first=first)


def decoded(*lines: bytes, start: int = 0, file: str = "/f", first: int = 1) -> list[LogChunk]:
    batch = made(*lines, file=file, first=first)
    assert batch.count == len(lines)
    return list(CODEC.decode_batch(batch.tag, batch.payload, start))


def test_a_text_line_is_what_was_read_out_of_it() -> None:
    [chunk] = decoded(
        encoded("raw", fields={"a": 1}, message="m", level=5, time_us=1_710_062_102_120_000, zone="Z",
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
    line = b'[%b,0,9,2,null,null,"m"]' % raw
    [chunk] = decoded(line)
    assert chunk.raw == raw.decode()
    assert dict(chunk.fields) == {"msg": "éé", "n": 12345678901234567890123}
    assert (chunk.message, chunk.level, chunk.flags) == ("m", LogLevel.INFO, ())


def test_a_line_without_a_message_says_all_of_it() -> None:
    text, structured = decoded(encoded("all", fields={}), encoded({"a": 1}))
    assert (text.message, structured.message) == ("all", '{"a":1}')


raws = st.text(max_size=30) | st.dictionaries(
    st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3
)


@given(raws=st.lists(raws, min_size=1, max_size=20), start=st.integers(0, 2**40), first=st.integers(1, 2**40))
def test_every_chunk_is_a_line_and_every_span_its_bytes(raws: list[Any], start: int, first: int) -> None:
    lines = [encoded(raw, fields={} if isinstance(raw, str) else None) for raw in raws]
    batch = made(*lines, file="/f\n", first=first)
    chunks = CODEC.decode_batch(batch.tag, batch.payload, start)
    assert [chunk.sequence for chunk in chunks] == list(range(first, first + len(raws)))
    at = start
    for chunk, line, raw in zip(chunks, lines, raws, strict=True):
        assert chunk.span.start == at  # without a gap: nothing counts as dropped
        at = chunk.span.end
        assert batch.payload[chunk.span.start - start : at - start].endswith(line + b"\n")
        assert (chunk.raw if isinstance(raw, str) else json.loads(chunk.raw)) == raw
        assert chunk.file == "/f\n"
    assert at == start + len(batch.payload)


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_levels_travel_by_their_place(level: int) -> None:
    [chunk] = decoded(encoded("x", fields={}, level=level))
    assert chunk.level is not None
    assert (chunk.level.value, chunk.level.severity) == (LEVELS[level], level)


@pytest.mark.parametrize("time_us", [-62_135_596_800_000_000, -1, 0, 1, 253_402_300_799_999_999])
def test_times_are_exact(time_us: int) -> None:
    [chunk] = decoded(encoded("x", fields={}, time_us=time_us))
    assert chunk.timestamp is not None
    assert (chunk.timestamp - EPOCH) // timedelta(microseconds=1) == time_us


def test_neighbours_of_one_time_and_of_none_are_told_apart() -> None:
    chunks = decoded(*(encoded("x", fields={}, time_us=at) for at in (None, 5, 5, None, 0, None)))
    assert [chunk.timestamp and chunk.timestamp.microsecond for chunk in chunks] == [
        None,
        5,
        5,
        None,
        0,
        None,
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{}", b"[]", b"null", b'"x"', b'["x"]',
        b'["x",-1,1,null,null,null,null,{}]', b'["x",0,1,9,null,null,null,{}]',
        b'["x",0,1,-1,null,null,null,{}]', b'["x",0,1,null,253402300800000000,null,null,{}]', b'["x",0,1,null,null,7,null,{}]',
        b'["x",0,1,null,null,null,null,{},4096]', b'["x",0,1,null,null,null,null,{},-1]', b'["x",0,1.5,null,null,null,null,{}]',

        b'["\\ud800",0,1,null,null,null,null,{}]', b'["\\x",0,1,null,null,null,null,{}]', b'[{"a":},0,1]',
        b'["x",0,1,null,null,"' + b"z" * 65 + b'",null,{}]', b'["x",0,18446744073709551615,null,null,null,null,{}]',
        b"[" + b'{"a":' * 100_000, b'["x",0,1,null,null,null,null,{}', b'["x",0,1,null,null,null,null,{}] []', b"\xff", b'["x",0,1,true,null,null,null,{}]',
    ],
)  # fmt: skip
def test_a_line_that_no_guest_of_ours_sends_is_refused(line: bytes) -> None:
    batch = made(encoded("good", fields={}), line, encoded("good", fields={}))
    with pytest.raises(GuestProtocolError):
        CODEC.decode_batch(batch.tag, batch.payload, 0)


@pytest.mark.parametrize(
    "line",
    [b'["x",0,1]', b'["x",0,1,null,null,null,null,[]]', b'[{},0,1,null,null,null,null,7]', b'["x",2,1,null,null,null,null,{}]'],
)  # fmt: skip
def test_fields_that_are_none_are_none(line: bytes) -> None:
    [chunk] = decoded(line)
    assert dict(chunk.fields) == {}


@pytest.mark.parametrize(
    ("line", "raw"),
    [(b"[1,0,1]", "1"), (b"[null,0,1]", "null"), (b"[[],0,1]", "[]"), (b'[ "x",0,1]', "x"), (b'["\xff",0,1]', "\ufffd")],
)  # fmt: skip
def test_whatever_a_line_is_it_becomes_a_text(line: bytes, raw: str) -> None:
    [chunk] = decoded(line)
    assert chunk.raw == raw


@given(data=st.binary(max_size=80))
def test_whatever_comes_is_taken_apart_or_refused(data: bytes) -> None:
    mutated = b'["' + data + b'",0,1,null,null,null,null,{"a":"' + data + b'"}]'
    for lines in ([data], [mutated], [b"[{" + data + b"},0,1]"]):
        batch = made(*lines)
        try:
            chunks = CODEC.decode_batch(batch.tag, batch.payload, 0)
        except GuestProtocolError:
            continue
        for chunk in chunks:
            chunk.model_dump_json()
            assert isinstance(dict(chunk.fields), dict)


def test_a_chunk_that_stands_alone_is_encoded_and_decoded() -> None:
    [chunk] = decoded(encoded("x", fields={"a": [1]}, flags=64))
    again = CODEC.decode(*CODEC.encode(chunk))
    assert again.model_dump() == chunk.model_dump()
    assert again.flags == (LogFlag.TOO_DEEP,)
