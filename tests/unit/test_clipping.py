"""Long text keeps its head and its tail, says what is missing, and cuts nothing in two."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.streaming.clipping import ClippedText, clip_text
from aeolus_sandbox.streaming.rendering import render_text

MARKER = re.compile(r"\n\[\.\.\. (\d+) of (\d+) characters left out \.\.\.\]\n")
SCIENTIST = "👩\u200d🔬"
REPORT = "".join(f"collect {number}\n" for number in range(5000)) + "E   AssertionError: 2 != 3\n"


@given(text=st.text(max_size=300), limit=st.integers(0, 350))
def test_the_result_is_never_longer_than_the_limit(text: str, limit: int) -> None:
    clipped = clip_text(text, limit)
    assert len(clipped) <= limit
    if len(text) <= limit:
        assert clipped == text


@given(text=st.text(min_size=200, max_size=400), limit=st.integers(80, 199))
def test_what_is_kept_and_what_is_missing_add_up(text: str, limit: int) -> None:
    clipped = clip_text(text, limit)
    marker = list(MARKER.finditer(clipped))[-1]
    head, tail = clipped[: marker.start()], clipped[marker.end() :]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert int(marker[1]) == len(text) - len(head) - len(tail)
    assert int(marker[2]) == len(text)


def test_the_error_at_the_end_is_kept() -> None:
    clipped = clip_text(REPORT, 4000)
    assert clipped.startswith("collect 0\n")
    assert clipped.endswith("E   AssertionError: 2 != 3\n")
    assert MARKER.search(clipped)
    assert len(clipped) <= 4000


@pytest.mark.parametrize("limit", [0, 1, 10, 4000])
def test_every_limit_is_kept(limit: int) -> None:
    for text in (REPORT, "é" * 100_000, "\x1b[31m" * 5000):
        assert len(clip_text(text, limit)) <= limit


UNITS = [SCIENTIST, "e\u0301", "\x1b[38;5;196m", "\x1b]8;;http://x.example/\x1b\\", "☺\ufe0f", "👍🏽", "\r\n"]


@pytest.mark.parametrize("unit", UNITS)
@given(shift=st.integers(0, 40), limit=st.integers(80, 200))
def test_no_character_and_no_escape_sequence_is_cut(unit: str, shift: int, limit: int) -> None:
    clipped = clip_text("x" * shift + unit * 200, limit)
    head, tail = MARKER.split(clipped)[0], MARKER.split(clipped)[-1]
    assert head.lstrip("x").replace(unit, "") == ""
    assert tail.replace(unit, "") == ""


@given(parts=st.lists(st.text(max_size=40), max_size=30), limit=st.integers(0, 200))
def test_fed_in_pieces_it_is_clipped_as_a_whole(parts: list[str], limit: int) -> None:
    gist = ClippedText(limit)
    for part in parts:
        gist.feed(part)
    assert gist.characters == len("".join(parts))
    assert gist.rendered(str) == clip_text("".join(parts), limit)


@given(parts=st.lists(st.text(max_size=60), max_size=40), limit=st.integers(0, 60))
def test_little_is_held_of_a_long_output_and_the_ends_are_right(parts: list[str], limit: int) -> None:
    text, gist = "".join(parts), ClippedText(limit, held_characters=64)
    for part in parts:
        gist.feed(part)
    assert gist.rendered(str) == clip_text(text, limit)


def test_a_redrawn_progress_bar_leaves_room_for_the_rest() -> None:
    gist = ClippedText(200)
    for number in range(10_000):
        gist.feed(f"\r{number / 100:.2f}%")
    gist.feed("\r100%  \nE   failed\n")
    found = gist.rendered(render_text)
    assert found.endswith("E   failed\n")
    assert len(found) <= 200
