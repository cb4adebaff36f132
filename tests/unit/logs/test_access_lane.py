"""What the fast lane makes of a block of access lines is what the line by line way makes of it."""

import time
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.access_lane import AccessLane
from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.frames import Tail, TailPath
from aeolus_sandbox.guest.logs.lines import LEVELS, Block
from aeolus_sandbox.guest.logs.pipeline import Counts, FilePipeline
from aeolus_sandbox.guest.logs.selection import Selection
from tests.unit.logs.linear import LENGTH, LIMIT_S
from tests.unit.logs.sent_lines import SentLine, sent_lines

COMMON: Final = b'192.0.2.7 - ann [10/Mar/2024:09:15:02 +0000] "GET /a?q=1 HTTP/1.1" 200 512'
COMBINED: Final = COMMON + b' "https://example.net/" "Mozilla/5.0 (X11)"'
FORMATS: Final = ("combined", "clf", "auto")

hosts = st.sampled_from(
    ["192.0.2.7", "2001:db8::1", "::1", "a.example", "Mar", "10,", "-", "", "{", "a=1", "null", "0"]
)
words = st.sampled_from(["-", "ann", "a=1", "[x", "", "stdout", "é", "a,b", "F"])
stamps = st.sampled_from(
    ["10/Mar/2024:09:15:02 +0000", "10/Mar/2024:09:15:02 -0730", "10/Mar/2024:09:15:02", "32/Mar/2024:09:15:02 +0000",
     "2024-03-10T09:15:02Z", "now", "", "1710062102"]
)  # fmt: skip
requests = st.sampled_from(
    ["GET / HTTP/1.1", "-", "", "GET /a b HTTP/1.1", r"\x16\x03", r"a \" b", "GET /ü", "[x] y"]
)
numbers = st.sampled_from(
    ["200 512", "404 -", "500 0", "099 1", "20 1", "200 x", "200  5", "200 ٣", "200 " + "9" * 21]
)
rests = st.sampled_from(
    ["", ' "-" "-"', ' "https://a/" "M (X; \t)"', ' "a" "b" 7', ' "a" "b', ' "a"', " ", ' "" ""']
)
access = st.builds(
    lambda host, ident, user, stamp, request, number, rest: (
        f'{host} {ident} {user} [{stamp}] "{request}" {number}{rest}'.encode()
    ),
    hosts, words, words, stamps, requests, numbers, rests,
)  # fmt: skip
odd = st.sampled_from(
    [b"", b"plain", b'{"msg":"m"}', b" " + COMMON, COMMON + b" ", COMMON + b"\xff", b"2024-03-10 09:15:02 INFO up",
     b"2024-03-10T09:15:02.1Z stdout F " + COMMON, b"level=info msg=up", b"<13>Mar 10 09:15:02 h a: m"]
)  # fmt: skip
lines = st.one_of(st.just(COMMON), st.just(COMBINED), access, odd)


def taken(
    content: list[bytes], *, form: str, lane: bool, least: int | None
) -> tuple[list[SentLine], tuple[int, int, int, int]]:
    request = Tail(op=1, paths=[TailPath("/f")], mounts=["/"], format=form, level=least)
    counts = Counts()
    pipeline = FilePipeline(request, Selection(request), counts)
    assert pipeline._lanes
    if not lane:
        pipeline._lanes = []
    found: list[SentLine] = []
    start = 0
    for block in (content[:1], content[1:]):  # what `auto` makes of a line depends on those before
        ends = [start := start + len(line) + 1 for line in block]
        if block:
            first = ends[0] - len(block[0]) - 1
            found += sent_lines(pipeline.take(Block(path="/f", lines=block, start=first, ends=ends)))
    return found, (counts.read, counts.matched, counts.dropped, counts.unparsed)


@given(
    content=st.lists(lines, min_size=1, max_size=6),
    form=st.sampled_from(FORMATS),
    least=st.none() | st.integers(0, len(LEVELS) - 1),
)
def test_both_ways_make_the_same_of_any_lines(content: list[bytes], form: str, least: int | None) -> None:
    by_lane = taken(content, form=form, lane=True, least=least)
    assert by_lane == taken(content, form=form, lane=False, least=least)


@given(content=st.lists(access, min_size=1, max_size=2), form=st.sampled_from(FORMATS), before=lines)
def test_both_ways_make_the_same_of_access_lines(content: list[bytes], form: str, before: bytes) -> None:
    by_lane = taken([before, *content], form=form, lane=True, least=None)
    assert by_lane == taken([before, *content], form=form, lane=False, least=None)


@pytest.mark.parametrize(("shape", "line"), [("clf", COMMON), ("combined", COMBINED)])
def test_usual_lines_take_the_lane(shape: str, line: bytes) -> None:
    found = AccessLane(ParseContext(), ("combined", "clf")).take([line, line.replace(b" 200 ", b" 503 ")])
    assert found is not None
    assert found.levels == [LEVELS.index("info"), LEVELS.index("error")]
    assert found.times_us == [1_710_062_102_000_000] * 2
    assert (found.zones[0], found.messages[0]) == ("+0000", "GET /a?q=1 HTTP/1.1")
    assert bytes(found.fields) == f'"{shape}"'.encode()


def test_a_line_whose_time_is_none_goes_the_usual_way() -> None:
    found = AccessLane(ParseContext(), ("clf",)).take([COMMON, COMMON.replace(b"10/Mar", b"32/Mar")])
    assert found is not None
    assert found.levels == [LEVELS.index("info"), None]


def test_lane_is_closed_for_a_while_after_what_it_cannot_take() -> None:
    lane = AccessLane(ParseContext(), ("combined",))
    assert lane.take([COMBINED, COMMON]) is None
    tries = 0
    while lane.take([COMBINED]) is None:
        tries += 1
        assert tries < 100
    assert tries > 3


@pytest.mark.parametrize("part", [b"a", b"a ", b"a - ", b'a - b [c] "', b'a - b [c] "d" 200 1 "', b"[", b'"'])
def test_a_hostile_block_takes_time_in_proportion_to_its_length(part: bytes) -> None:
    began = time.process_time()
    assert AccessLane(ParseContext(), ("combined", "clf")).take([part * (LENGTH // len(part))]) is None
    assert time.process_time() - began < LIMIT_S
