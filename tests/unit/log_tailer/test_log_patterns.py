"""Patterns are RE2's: found in linear time, and refused where they are none or cost too much."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.patterns import MAX_PATTERN_CHARACTERS, PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        ("timeout", b"a timeout b", True),
        ("timeout", b"TIMEOUT", False),
        ("(?i)timeout", b"TIMEOUT", True),
        ("^b", b"a\nb", False),
        ("(?m)^b", b"a\nb", True),
        ("a.c", "aéc".encode(), True),
        ("a.c", b"a\xffc", False),
        ("é", "café".encode(), True),
        (r"\d{3}$", b"status=404", True),
        ("a", b"\xff\xfe a \x00", True),
        ("a", b"", False),
    ],
)
def test_a_pattern_is_found_anywhere_in_a_line(pattern: str, line: bytes, found: bool) -> None:
    assert compile_pattern(pattern).search(line) is found


def test_a_pattern_that_hangs_others_takes_no_time() -> None:
    hostile = compile_pattern(r"^(\w+\s?)+$")
    began = time.process_time()
    assert hostile.search(b"all fine")
    assert not hostile.search(b"request completed without any problem at all by worker seventeen !" * 900)
    assert time.process_time() - began < 1


def test_the_largest_pattern_and_the_longest_line_are_bounded() -> None:
    """About as large as is let through, on what makes RE2 give up its fast way."""
    worst = compile_pattern("a.{290}b.{290}c")
    line = bytes(b"ab "[n * n * 7 % 3] for n in range(64 * 1024))
    began = time.process_time()
    worst.search(line)
    assert time.process_time() - began < 5
    with pytest.raises(PatternError, match="too large"):
        compile_pattern("a.{900}b.{900}c")


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("(", 1), ("(?P<x>", 6), ("(?<x", 0), ("éx)é", 2), ("(a))b", 3), ("a*b|*c", 4), ("a**", 1), ("[a]b[c", 4),
        ("a\\", 2), (r"a\8b\8", 1), ("xx[b-a]yy", 3), ("a{2000}b", 1), ("ab(?=x)", 2), ("aa[[:foo:]]", 3), ("(?i", 0),
        ("a\ud800", 1), ("*", 0), ("ab[^]", 2),
    ],
)  # fmt: skip
def test_the_fault_of_a_pattern_is_shown_where_it_is(pattern: str, position: int) -> None:
    with pytest.raises(PatternError, match=f"at position {position}") as refused:
        compile_pattern(pattern)
    assert refused.value.position == position


@pytest.mark.parametrize("pattern", ["", "a" * (MAX_PATTERN_CHARACTERS + 1), r"(?i)(\pL{1,30}\s?){1,30}!$"])
def test_a_pattern_that_is_empty_or_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError) as refused:
        compile_pattern(pattern)
    assert refused.value.position is None


@given(
    pattern=st.text(max_size=30) | st.text(alphabet="ab()[]{}*+?|\\^$.,-:<>=P09i", max_size=30),
    line=st.binary(max_size=50),
)
def test_whatever_is_given_is_a_pattern_or_refused(pattern: str, line: bytes) -> None:
    position: int | None = None
    try:
        assert isinstance(compile_pattern(pattern).search(line), bool)
    except PatternError as error:
        position = error.position
    assert position is None or 0 <= position <= len(pattern)
