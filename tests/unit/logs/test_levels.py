"""Whatever a logger calls its levels, they are on the one scale; what is no level is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.levels import Scale, level_of_name, level_of_number, level_of_value, scale_of
from aeolus_sandbox.guest.logs.lines import LEVELS


def _name(level: int | None) -> str | None:
    return None if level is None else LEVELS[level]


@pytest.mark.parametrize(
    ("level", "names"),
    [
        ("emergency", "emerg EMERG Emergency"),
        ("alert", "alert ALERT"),
        ("critical", "crit CRIT critical CRT fatal FATAL FTL F dpanic panic PANIC pani fata"),
        ("error", "err error ERROR Error ERR E SEVERE erro fail"),
        ("warning", "warn WARN warning WARNING W WRN"),
        ("notice", "notice NOTICE n"),
        ("info", "info INFO Information INF I LOG STATEMENT HINT DETAIL"),
        ("debug", "debug DEBUG DBG D FINE debug1 DEBUG5 dbug"),
        ("trace", "trace TRACE TRC FINER FINEST T verbose"),
    ],
)
def test_names_of_the_usual_loggers_are_known(level: str, names: str) -> None:
    assert {name: _name(level_of_name(name)) for name in names.split()} == dict.fromkeys(names.split(), level)


@pytest.mark.parametrize(
    "name", ["eror", "", " ", "ANY", "UNKNOWN", "unknown", "errors", "x" * 100_000, "terror", "30"]
)
def test_what_is_no_name_of_a_level_is_none(name: str) -> None:
    assert level_of_name(name) is None


@given(name=st.sampled_from(["warning", "Error", "INFO"]), data=st.data())
def test_case_and_filled_up_columns_do_not_matter(name: str, data: st.DataObject) -> None:
    upper = data.draw(st.lists(st.booleans(), min_size=len(name), max_size=len(name)))
    mixed = "".join(char.upper() if up else char.lower() for char, up in zip(name, upper, strict=True))
    assert level_of_name(mixed) == level_of_name(f"{mixed} ") == level_of_name(name.lower())


@pytest.mark.parametrize(
    ("scale", "value", "level"),
    [
        *[
            ("pino", value, name)
            for value, name in ((10, "trace"), (20, "debug"), (30, "info"), (40, "warning"))
        ],
        *[
            ("pino", value, name)
            for value, name in ((50, "error"), (60, "critical"), (35, "info"), (59, "error"))
        ],
        *[
            ("python", value, name)
            for value, name in ((5, "trace"), (10, "debug"), (20, "info"), (25, "info"))
        ],
        *[("python", value, name) for value, name in ((30, "warning"), (40, "error"), (50, "critical"))],
        *[("syslog", value, LEVELS[8 - value]) for value in range(8)],
        *[("syslog", value, None) for value in (-1, 8, 30)],
        *[(scale, value, None) for scale in ("pino", "python") for value in (0, -10, 100, 10**30)],
    ],
)
def test_numbers_mean_what_their_scale_says(scale: Scale, value: int, level: str | None) -> None:
    assert _name(level_of_number(value, scale)) == level


def test_a_number_alone_is_a_severity_up_to_seven_and_pinos_above() -> None:
    assert [scale_of(value) for value in (0, 3, 7)] == ["syslog"] * 3
    assert [scale_of(value) for value in (10, 30, 60)] == ["pino"] * 3
    assert _name(level_of_value(3)) == "error"
    assert _name(level_of_value(30)) == "info"
    assert _name(level_of_value(30, "python")) == "warning"


@pytest.mark.parametrize(
    ("value", "level"), [("3", "error"), ("30", "info"), (30.0, "info"), ("warn", "warning")]
)
def test_a_field_may_hold_a_number_as_text(value: object, level: str) -> None:
    assert _name(level_of_value(value)) == level


@given(value=st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.lists(st.integers()))
def test_any_value_of_a_field_is_a_level_or_none(value: object) -> None:
    level = level_of_value(value)
    assert level is None or 0 <= level < len(LEVELS)
    if isinstance(value, bool):
        assert level is None
