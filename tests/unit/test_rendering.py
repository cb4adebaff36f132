"""Terminal output reads as it looks on a screen in the end."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.streaming.rendering import MAX_COLUMNS, LineRenderer, render_text

tokens = st.sampled_from(
    ["\r", "\n", "\b", "\t", "\x1b", "[", "K", "1", "2", ";", "m", "]", "\x07", "\\", "\x1b[K", "\x1b[1K", "\x1b[2K",
     "\x1b[31m", "\x1b]0;t\x07", "\x1b(B", "\x9b", "\x00", "é", "ab", "0%"]
)  # fmt: skip


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        ("0%\r50%\r100%\n", "100%\n"),
        ("abcdef\rXY\n", "XYcdef\n"),
        ("10%\r\x1b[K7%\n", "7%\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("done\r", "done"),
        ("50%\r\n", "50%\n"),
        ("abc\b\bX\n", "aXc\n"),
        ("\x1b[31mred\x1b[0m and \x1b]0;title\x07plain\n", "red and plain\n"),
        ("abc\x1b[2K\rx\n", "x\n"),
        ("abcdef\r\x1b[2C\n", "abcdef\n"),
    ],
)
def test_a_line_reads_as_it_looks_in_the_end(printed: str, seen: str) -> None:
    assert render_text(printed) == seen


def test_a_newline_in_the_next_chunk_does_not_make_an_empty_line() -> None:
    renderer = LineRenderer()
    assert renderer.feed("50%\r") + renderer.feed("\n") + renderer.flush() == "50%\n"


@given(parts=st.lists(tokens | st.text(max_size=3), max_size=30))
def test_any_split_gives_the_same_text(parts: list[str]) -> None:
    renderer = LineRenderer()
    found = "".join(renderer.feed(part) for part in parts) + renderer.flush()
    assert found == render_text("".join(parts))


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cc"]), max_size=200))
def test_plain_text_is_left_alone(text: str) -> None:
    assert render_text(text) == text


@given(parts=st.lists(tokens | st.text(max_size=3), max_size=30))
def test_no_control_character_is_left(parts: list[str]) -> None:
    left = {
        character
        for character in render_text("".join(parts))
        if ord(character) < 32 or 127 <= ord(character) < 160
    }
    assert left <= {"\n", "\t"}


def test_ten_thousand_redraws_are_one_line_and_cost_no_memory() -> None:
    renderer = LineRenderer()
    tracemalloc.start()
    found = "".join(renderer.feed(f"\r{number / 100:.2f}%") for number in range(10_001))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found + renderer.flush() == "100.00%"
    assert peak < 200_000


def test_a_line_without_an_end_is_cut() -> None:
    renderer = LineRenderer()
    for _ in range(100):
        assert renderer.feed("x" * 10_000) == ""
    assert renderer.flush() == "x" * MAX_COLUMNS
