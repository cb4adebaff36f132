"""What the fast lane makes of a block of JSON lines is what the line by line way makes of it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.formats.json_lines import MAX_DEPTH
from aeolus_sandbox.guest.logs.frames import Tail, TailPath
from aeolus_sandbox.guest.logs.json_lane import JsonLane
from aeolus_sandbox.guest.logs.lines import LEVELS, Block
from aeolus_sandbox.guest.logs.pipeline import Counts, FilePipeline
from aeolus_sandbox.guest.logs.selection import Selection
from aeolus_sandbox.tools.log_tailer.batches import LogCodec, batch_of

USUAL = b'{"level":30,"time":1710062102120,"msg":"ok"}'

levels: st.SearchStrategy[Any] = st.sampled_from(
    ["info", "WARN", "Error", "eror", "I", 30, 35, 50, 3, 7, 999, -1, 1.5, None, True, {}, ["info"]]
)
times: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([1710062102120, 1710062102, 0, -1, 10**30, 1.5, None, [], "", "soon"]),
    st.sampled_from(["2024-03-10T09:15:02.120Z", "2024-03-10 09:15:02,120", "2024-03-10T14:45:02+05:30"]),
)
messages: st.SearchStrategy[Any] = st.one_of(
    st.text(max_size=8), st.integers(), st.none(), st.just(["a"]), st.just({"b": 1})
)
usual = st.builds(
    lambda level, time, text: {"level": level, "time": time, "msg": text}, levels, times, messages
)
odd = st.dictionaries(
    st.sampled_from(
        [
            "level",
            "time",
            "ts",
            "msg",
            "message",
            "log",
            "stream",
            "short_message",
            "version",
            "x",
            "@timestamp",
        ]
    ),
    levels | times | messages,
    max_size=6,
)
lines = st.one_of(
    usual.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    odd.map(lambda value: json.dumps(value).encode()),
    st.just(USUAL),
    st.sampled_from([b"", b"plain", b"[1]", b"42", b'{"cut', b'{"a":1}{"b":2}', b'{"a":[1', b"{}]}", b'{"a":', b"}", b"{},{}", b"{} 0 {}", b"0", b" " + USUAL, USUAL + b" ", b"{}", b'{"a":1e400}']),
    st.binary(max_size=12),
).filter(lambda line: b"\n" not in line)  # fmt: skip


def block_of(content: list[bytes], start: int = 7) -> Block:
    ends = [start]
    for line in content:
        ends.append(ends[-1] + len(line) + 1)
    return Block(path="/f", lines=content, start=start, ends=ends[1:])


def taken(
    content: list[bytes], *, lane: bool, least: int | None = None
) -> tuple[list[dict[str, object]], Counts]:
    request = Tail(op=1, paths=[TailPath("/f")], mounts=["/"], format="json", level=least)
    counts = Counts()
    pipeline = FilePipeline(request, Selection(request), counts)
    assert len(pipeline._lanes) == 1
    if not lane:
        pipeline._lanes = []
    outgoing = pipeline.take(block_of(content))
    if not outgoing.texts:
        return [], counts
    [(body, count, _)] = outgoing.batches()
    batch = batch_of("/f", body, count=count, first=1)
    chunks = LogCodec().decode_batch(batch.tag, batch.payload, 0)
    assert [chunk.end_offset for chunk in chunks] == outgoing.ends
    return [chunk.model_dump() | {"span": None} for chunk in chunks], counts


@given(content=st.lists(lines, min_size=1, max_size=8), least=st.none() | st.integers(0, len(LEVELS) - 1))
def test_both_ways_make_the_same_of_any_lines(content: list[bytes], least: int | None) -> None:
    assert taken(content, lane=True, least=least) == taken(content, lane=False, least=least)


@given(content=st.lists(usual.map(lambda value: json.dumps(value).encode()), min_size=1, max_size=8))
def test_both_ways_make_the_same_of_objects(content: list[bytes]) -> None:
    assert taken(content, lane=True) == taken(content, lane=False)


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 2, MAX_DEPTH, MAX_DEPTH + 1, MAX_DEPTH + 5, 900, 100_000])
def test_no_line_is_deeper_than_elsewhere(depth: int) -> None:
    deep = b'{"level":30,"time":1710062102120,"msg":"m","x":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
    content = [USUAL, deep, USUAL]
    assert taken(content, lane=True) == taken(content, lane=False)


@pytest.mark.parametrize(
    "content",
    [
        [b"{}", b"", b'{"a":1}{"b":2}'],
        [b'{"a":', b"{}}", b"{}{}"],
        [b'{"a":[1', b"{}]}", b"{},{}"],
        [b'{"a":', b"}", b"{} 0 {}"],
        [b"{", b"}", b"{} {} {}"],
    ],
)
def test_a_line_is_never_taken_for_a_part_of_another(content: list[bytes]) -> None:
    for lines in (content, content[::-1], [USUAL, *content, USUAL]):
        assert taken(lines, lane=True) == taken(lines, lane=False)


def test_usual_lines_take_the_lane() -> None:
    lane = JsonLane(ParseContext())
    iso = b'{"level":"error","time":"2024-03-10T09:15:02.120Z","message":"\\u00e9"}'
    found = lane.take([USUAL, iso, b'{"level":30,"msg":"no time"}', USUAL + b" "])
    assert found is not None
    info, error = LEVELS.index("info"), LEVELS.index("error")
    assert found.levels == [info, error, None, None]
    assert found.times_us[:2] == [1710062102120000, 1710062102120000]
    assert found.zones[:2] == [None, "Z"]
    assert found.messages[:2] == ["ok", "é"]


def test_lane_is_closed_for_a_while_after_what_it_cannot_take() -> None:
    lane = JsonLane(ParseContext())
    assert lane.take([USUAL, b"no JSON"]) is None
    tries = 0
    while lane.take([USUAL]) is None:
        tries += 1
        assert tries < 100
    assert tries > 3


def test_what_the_lane_gives_is_a_line() -> None:
    [chunk], counts = taken([USUAL], lane=True)
    assert (chunk["message"], chunk["raw"], chunk["offset"]) == ("ok", USUAL.decode(), 7)
    assert (counts.matched, counts.dropped, counts.unparsed, counts.read) == (1, 0, 0, 1)
    assert msgspec.json.decode(USUAL)["msg"] == "ok"
