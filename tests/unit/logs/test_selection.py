"""The filter of a reading: a line passes when it meets all that is set."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.frames import Tail
from aeolus_sandbox.guest.logs.lines import Parsed
from aeolus_sandbox.guest.logs.selection import Selection


def selection(**options: Any) -> Selection:
    return Selection(Tail(1, [], [], **options))


def takes(parsed: Parsed, text: str = "", **options: Any) -> bool:
    chosen = selection(**options)
    assert chosen.looks_inside
    return chosen.takes(parsed, text)


def test_without_conditions_nothing_is_looked_at() -> None:
    chosen = selection()
    assert (chosen.looks_at_text, chosen.looks_inside) == (False, False)
    assert selection(pattern="a").looks_at_text
    assert selection(exclude="a").looks_at_text
    assert selection(level=0).looks_inside
    assert selection(since_us=0).looks_inside


@pytest.mark.parametrize(("level", "passes"), [(3, False), (4, True), (8, True), (None, False)])
def test_a_level_is_the_least_that_passes(level: int | None, passes: bool) -> None:
    assert takes(Parsed(level=level), level=4) is passes


@pytest.mark.parametrize(("level", "passes"), [(None, True), (3, False), (4, True)])
def test_lines_without_a_level_pass_where_that_was_asked(level: int | None, passes: bool) -> None:
    assert takes(Parsed(level=level), level=4, keeps_unknown_level=True) is passes


@pytest.mark.parametrize(
    ("time_us", "passes"), [(99, False), (100, True), (199, True), (200, False), (None, True)]
)
def test_times_are_from_since_to_before_until_and_unknown_ones_pass(
    time_us: int | None, passes: bool
) -> None:
    assert takes(Parsed(time_us=time_us), since_us=100, until_us=200) is passes


@pytest.mark.parametrize(
    ("equals", "passes"),
    [
        ({"a": "text"}, True),
        ({"a": "Text"}, False),
        ({"n": "404"}, True),
        ({"f": "1.5"}, True),
        ({"t": "true"}, True),
        ({"z": "null"}, False),
        ({"o.deep.er": "x"}, True),
        ({"o.deep": '{"er":"x"}'}, True),
        ({"a.b": "dotted"}, True),
        ({"a.c": "x"}, False),
        ({"l": "[1,2]"}, True),
        ({"big": "123456789012345678901234567890"}, True),
        ({"a": "text", "n": "405"}, False),
        ({"none": ""}, False),
    ],
)
@pytest.mark.parametrize("as_object", [True, False])
def test_fields_are_compared_as_text(equals: dict[str, str], passes: bool, as_object: bool) -> None:
    fields: dict[str, Any] = {
        "a": "text", "n": 404, "f": 1.5, "t": True, "z": None, "o": {"deep": {"er": "x"}}, "a.b": "dotted", "l": [1, 2],
        "big": 123456789012345678901234567890,
    }  # fmt: skip
    text = (
        '{"a":"text","n":404,"f":1.5,"t":true,"z":null,"o":{"deep":{"er":"x"}},"a.b":"dotted","l":[1,2],'
        '"big":123456789012345678901234567890}'
    )
    parsed = Parsed(is_object=True) if as_object else Parsed(fields=fields)
    assert takes(parsed, text, equals=equals) is passes


def test_the_pattern_must_be_found_and_the_other_must_not() -> None:
    chosen = selection(pattern="er+or", exclude="ignored")
    assert chosen.takes_text(b"an error")
    assert not chosen.takes_text(b"an eor")
    assert not chosen.takes_text(b"an error, ignored")
    assert chosen.takes_text(b"\xff error \x00")


def test_no_line_takes_a_pattern_more_than_linear_time() -> None:
    chosen = selection(pattern=r"^(\w+\s?)+$", exclude="(a*)*b")
    began = time.process_time()
    for _ in range(20):
        chosen.takes_text(b"a" * 60_000 + b"!")
    assert time.process_time() - began < 5


@given(
    fields=st.dictionaries(st.text(max_size=4), st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4), st.lists, max_leaves=4), max_size=4),
    name=st.text(max_size=6),
    text=st.text(max_size=40),
)  # fmt: skip
def test_whatever_the_fields_are_there_is_an_answer(fields: dict[str, Any], name: str, text: str) -> None:
    assert takes(Parsed(fields=fields), text, equals={name: text}) in {True, False}
    assert takes(Parsed(is_object=True), text, equals={name: text}) in {True, False}
