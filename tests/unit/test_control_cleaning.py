"""What a terminal would obey is taken out, and nothing else is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.streaming.filters import CleanControls, controls
from aeolus_sandbox.streaming.filters.base import filtered
from tests.unit.text_pieces import cuts, passed, split

ATTACK = (
    "ok\x1b[2J\x1b]0;owned\x07\x1b]52;c;cm0=\x07\x1b]8;;http://x.example/\x1b\\link\x1b]8;;\x1b\\ "
    "\x9b31mred \u202egnp.exe"
)
hostile_text = st.text(
    st.sampled_from("\x1b[]P\\m;:01?! \x07\x18\r\n\t\b\x7f\x90\x9b\x9c\x9d\u202e\u200d\U000e0041Ja")
    | st.characters(codec=None),
    max_size=60,
)


def clean(text: str, *, colours: bool = False) -> str:
    return filtered(text, [CleanControls(colours=colours)])


def test_attack_on_the_screen_is_harmless_split_at_every_place() -> None:
    for place in range(len(ATTACK) + 1):
        assert passed(CleanControls(), [ATTACK[:place], ATTACK[place:]]) == "oklink red gnp.exe"
    assert passed(CleanControls(), list(ATTACK)) == "oklink red gnp.exe"


@settings(deadline=None)
@given(hostile_text, cuts, st.booleans())
def test_cutting_a_text_anywhere_gives_the_same(text: str, places: list[int], colours: bool) -> None:
    config = CleanControls(colours=colours)
    assert passed(config, split(text, places)) == passed(config, [text])


@settings(deadline=None)
@given(hostile_text, st.booleans())
def test_nothing_is_left_to_obey(text: str, colours: bool) -> None:
    cleaned = clean(text, colours=colours)
    assert clean(cleaned, colours=colours) == cleaned
    assert not set(clean(cleaned)) & set("\x1b\x07\b\x7f\x90\x9b\x9d\u202e\U000e0041")
    assert colours or cleaned == clean(cleaned)
    clean(cleaned).encode("utf-8")


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=("C", "Z", "M")) | st.sampled_from(" \n\t\r"), max_size=60))
def test_ordinary_text_stays_as_it_is_and_nothing_is_delayed(text: str) -> None:
    cleaner = CleanControls().start()
    assert [cleaner.feed(each) for each in text] == list(text)


@pytest.mark.parametrize(
    "text",
    [
        "👩‍👩‍👧 ❤️ 👍🏽 1️⃣ 🏳️‍🌈",
        "می‌خواهم",  # with a zero-width non-joiner, as Persian is written
        "naïve café e\u0301 漢字",
        "a\tb\r\nc",
    ],
)
def test_what_emoji_and_scripts_need_stays(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("a\x1b[31;1mb\x1b[0m", "ab"),
        ("a\x1b[?1049hb", "ab"),
        ("a\x1b[>4;2mb", "ab"),
        ("a\x1b[2 qb", "ab"),
        ("a\x1b(Bb\x1b7c\x1bcd", "abcd"),
        ("a\x1bP1$r0m\x1b\\b", "ab"),
        ("a\x1b_Gf=100;AAAA\x1b\\b", "ab"),
        ("a\x1b^secret\x9cb\x1bXsos\x1b\\c", "abc"),
        ("a\x9d0;title\x07b\x90q\x9cc", "abc"),
        ("a\x1b\x1b[2Jb", "ab"),
        ("a\x1b]0;t\x1b[2Jb", "ab"),
        ("a\x1b]0;t\x18b", "ab"),
        ("abc\b\b\bx\x00y\x7fz\x85", "abcxyz"),
        ("a\u200bb\u2066c\ufeffd\u2028e\U000e0041f\U000e0100g\ufe00h", "abcdefgh"),
        ("a\ud800b", "ab"),
    ],
)
def test_each_kind_of_control_goes(text: str, rest: str) -> None:
    assert clean(text) == rest


@pytest.mark.parametrize(
    ("sequence", "kept"),
    [
        ("\x1b[31m", "\x1b[31m"),
        ("\x1b[m", "\x1b[m"),
        ("\x1b[38;5;120;1m", "\x1b[38;5;120;1m"),
        ("\x9b31m", "\x1b[31m"),
        ("\x1b[8m", ""),
        ("\x1b[5m", ""),
        ("\x1b[?1m", ""),
        ("\x1b[1 m", ""),
        ("\x1b[1J", ""),
        ("\x1b[" + "1;" * 40 + "1m", ""),
    ],
)
def test_plain_colours_and_no_others_stay_when_they_are_on(sequence: str, kept: str) -> None:
    assert clean(f"a{sequence}b", colours=True) == f"a{kept}b"
    assert clean(f"a{sequence}b") == "ab"


@pytest.mark.parametrize("opening", ["\x1b]0;title", "\x1bPq", "\x9d", "\x1b[31", "\x1b", "\x1b("])
def test_unfinished_sequence_takes_no_more_than_its_line(opening: str) -> None:
    assert clean(f"a{opening}\nb\n") == "a\nb\n"


def test_endless_parameters_are_text_again_after_a_while() -> None:
    assert clean("\x1b[" + "1" * 1000 + "m").endswith("1m")


@pytest.mark.parametrize("opening", ["\x1b]", "\x90", "\x1b[", "\x1b", "\x1b[;"])
@pytest.mark.timeout(60)
def test_hostile_text_needs_neither_memory_nor_more_than_linear_time(opening: str) -> None:
    cleaner = CleanControls().start()
    assert isinstance(cleaner, controls._Cleaner)
    for _ in range(100_000):
        cleaner.feed(opening)
        assert len(cleaner._held) <= 300
    cleaner.feed(opening * 500_000)
    cleaner.feed("x" * 1_000_000)
    assert len(cleaner._held) <= 300
