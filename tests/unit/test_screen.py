"""What a container says reaches the operator's screen as something to read, never as an order to the terminal."""

import itertools
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.streaming.screen import RESET, ScreenFilter, harmless

SGR = re.compile(r"\x1b\[[0-9;:]*m")
ATTACK = (
    "ok\x1b[2J\x1b]0;owned\x07\x1b]52;c;cm0=\x07\x1b]8;;http://x.example/\x1b\\link\x1b]8;;\x1b\\ "
    "\x9b31mred \u202egnp.exe"
)
hostile_text = st.text(
    st.one_of(st.sampled_from("\x1b[]m;:0138?\x07\r\n\t\x9b\x9d\u202e\u2066"), st.characters(codec=None)),
    max_size=80,
)


def is_obeyed(character: str) -> bool:
    """Return whether a terminal would obey the character instead of showing it."""
    kept = character in "\n\r\t"
    return (unicodedata.category(character) == "Cc" and not kept) or unicodedata.bidirectional(character) in {
        "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
    }  # fmt: skip


def shown(pieces: list[str], *, colours: bool) -> str:
    screen = ScreenFilter(colours=colours)
    return "".join(map(screen.feed, pieces)) + screen.flush()


def test_attack_on_the_screen_is_shown_and_not_obeyed() -> None:
    text = harmless(ATTACK)
    assert not any(map(is_obeyed, text))
    assert "␛]52;c;cm0=␇" in text
    assert "<U+202E>gnp.exe" in text
    assert "<U+009B>31mred" in text


@given(hostile_text, st.booleans())
def test_nothing_but_plain_colours_passes(text: str, colours: bool) -> None:
    result = shown([text], colours=colours)
    without_colours = SGR.sub("", result) if colours else result
    assert not any(map(is_obeyed, without_colours))
    result.encode("utf-8")


@given(hostile_text, st.lists(st.integers(0, 80)), st.booleans())
def test_cutting_a_text_anywhere_shows_the_same(text: str, cuts: list[int], colours: bool) -> None:
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    assert shown(pieces, colours=colours) == shown([text], colours=colours)


@given(st.text(st.characters(exclude_categories=("C", "Z")) | st.sampled_from(" \n\t\r"), max_size=60))
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert shown(list(text), colours=True) == text


@pytest.mark.parametrize("parameters", ["", "0", "1;31", "38;5;120", "48;2;1;2;3", "1;97;44"])
def test_plain_colours_pass_when_they_are_on_and_end_with_the_output(parameters: str) -> None:
    text = f"\x1b[{parameters}mred"
    assert shown([text], colours=True) == text + RESET
    assert shown([text], colours=False) == "red"


@pytest.mark.parametrize(
    "parameters", ["5", "8", "1;8", "38;5", "38;9;1", "10", "38", "58;5;1", ":" * 3 + "8"]
)
def test_blinking_hidden_and_broken_colours_do_not_pass(parameters: str) -> None:
    assert "\x1b" not in shown([f"\x1b[{parameters}mtext"], colours=True)


def test_unfinished_sequence_is_not_held_back_for_ever() -> None:
    screen = ScreenFilter(colours=True)
    assert screen.feed("a\x1b[3") == "a"
    assert screen.flush() == "␛[3"
    assert screen.feed("\x1b[" + "1" * 100) == "␛[" + "1" * 100
