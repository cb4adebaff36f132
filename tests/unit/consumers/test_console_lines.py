"""Lines behind the gutter: whole, folded, and never anybody else's."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.consumers.console_lines import Gutter, Prose, one_line
from aeolus_sandbox.consumers.console_paint import Paint, cells
from aeolus_sandbox.consumers.pictures import drawing_protocol

PLAIN = Paint({})
COLOURED = Paint({"gutter": ("\x1b[2m", "\x1b[0m")})
COLUMNS = 24
PREFIX = "x \u2502 "
COLOUR = re.compile(r"\x1b\[[0-9;:]*m")

pieces = st.lists(
    st.text(st.sampled_from("ab \t\n\r\u6f22\u0301\x1b[31m") | st.characters(), max_size=40), max_size=8
)


def fed(texts: list[str], columns: int | None, paint: Paint = PLAIN) -> str:
    gutter = Gutter("x", paint)
    return "".join([gutter.feed(text, columns) for text in texts]) + gutter.flush(columns)


@given(pieces, st.sampled_from([PLAIN, COLOURED]))
def test_every_line_stands_behind_the_gutter(texts: list[str], paint: Paint) -> None:
    text = COLOUR.sub("", fed(texts, None, paint))
    assert "\r" not in text
    assert all(line.startswith(PREFIX) for line in text.split("\n")[:-1])
    assert text == "" or text.endswith("\n")


@given(pieces)
def test_no_line_is_wider_than_the_terminal_and_none_leaves_the_gutter(texts: list[str]) -> None:
    text = fed(texts, COLUMNS)
    for line in text.split("\n")[:-1]:
        for written in line.split("\r\x1b[K"):
            assert written == "" or written.startswith(PREFIX)
            assert cells(written) <= COLUMNS


@given(pieces)
def test_nothing_is_lost_by_folding(texts: list[str]) -> None:
    def content(text: str) -> str:
        return re.sub(r"\s", "", text.replace(PREFIX, "").replace("\r\x1b[K", ""))

    assert content(fed(texts, COLUMNS)) == content(fed(texts, None))


@given(st.text("ab\n\r", max_size=30), st.integers(0, 30))
def test_line_ends_may_be_cut(text: str, cut: int) -> None:
    assert fed([text[:cut], text[cut:]], None) == fed([text], None)


def test_progress_bar_stays_on_its_line_on_a_terminal() -> None:
    assert fed(["10%\r20%\r", "\n"], COLUMNS) == f"{PREFIX}10%\r\x1b[K{PREFIX}20%\n"
    assert fed(["10%\r20%\r", "\n"], None) == f"{PREFIX}10%\n{PREFIX}20%\n"


def test_colours_of_a_tool_end_with_its_line() -> None:
    assert fed(["\x1b[31mred\nplain"], None, COLOURED).split("\n")[0].endswith("\x1b[31mred\x1b[0m")
    assert fed(["\x1b[31mred\nplain"], None) == f"{PREFIX}red\n{PREFIX}plain\n"


@given(st.text(max_size=50), st.integers(0, 50))
def test_model_cannot_write_over_its_line(text: str, cut: int) -> None:
    prose = Prose()
    assert "\r" not in prose.feed(text[:cut]) + prose.feed(text[cut:]) + prose.flush()


def test_short_line_says_how_much_is_missing() -> None:
    assert one_line("a\nb\rc", 99) == "a\u240ab\u240dc"
    assert one_line("abcdef", 4) == "abcd ... (2 more characters)"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"KITTY_WINDOW_ID": "1", "TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm2"),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, None),
        ({"TERM": "screen", "LC_TERMINAL": "iTerm2"}, None),
        ({"TERM": "xterm-256color"}, None),
        ({}, None),
    ],
)
def test_terminals_that_draw_are_known_by_their_environment(
    environment: dict[str, str], protocol: str | None
) -> None:
    assert drawing_protocol(Terminal(), environment) == protocol
    assert drawing_protocol(io.StringIO(), environment) is None
