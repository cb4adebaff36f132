"""Limits are safe by default and can only be narrowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.limits import GIB, MIB, Limits

NUMBERS = [
    "memory_bytes",
    "cpus",
    "pids",
    "disk_bytes",
    "tmp_bytes",
    "open_files",
    "wall_time_s",
    "output_bytes",
]
shares = st.dictionaries(st.sampled_from(NUMBERS), st.floats(0.3, 1), max_size=8)


def limits(**fields: object) -> Limits:
    return Limits.model_validate(fields)


@given(shares=shares)
def test_narrowing_never_widens_anything(shares: dict[str, float]) -> None:
    ours = Limits()
    asked = {name: type(getattr(ours, name))(getattr(ours, name) * share) for name, share in shares.items()}
    try:
        narrowed = ours.narrowed_by(Limits.model_validate(asked))
    except ValidationError:  # the disks that were asked for do not fit into the memory that was asked for
        return
    except ConfigurationError as error:
        assert "memory" in str(error)  # noqa: PT017 - said by the limits, not by the test
        return
    for name in NUMBERS:
        assert getattr(narrowed, name) <= getattr(ours, name)
        if name in asked:
            assert getattr(narrowed, name) == asked[name]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_wider_limit_is_refused_by_name(name: str) -> None:
    ours = limits(memory_bytes=2 * GIB)
    value = getattr(ours, name)
    with pytest.raises(ConfigurationError, match=name):
        ours.narrowed_by(Limits.model_construct(_fields_set={name}, **{name: value + 1}))


def test_fields_that_are_not_set_stay_as_they_are() -> None:
    ours = limits(pids=16, wall_time_s=5)
    assert ours.narrowed_by(Limits()) == ours
    assert ours.narrowed_by(None) is ours
    assert ours.narrowed_by(limits(pids=8)) == limits(pids=8, wall_time_s=5)


def test_an_idle_time_narrows_none_but_none_does_not_narrow_it() -> None:
    assert Limits().narrowed_by(limits(idle_time_s=3)).idle_time_s == 3
    with pytest.raises(ConfigurationError, match="idle_time_s"):
        limits(idle_time_s=3).narrowed_by(limits(idle_time_s=None))


def test_disks_shrink_with_the_memory_that_was_asked_for() -> None:
    narrowed = Limits().narrowed_by(limits(memory_bytes=400 * MIB))
    assert narrowed.disk_bytes + narrowed.tmp_bytes <= narrowed.memory_bytes == 400 * MIB


def test_disks_larger_than_memory_are_refused() -> None:
    with pytest.raises(ValidationError, match="disk_bytes"):
        limits(memory_bytes=64 * MIB, disk_bytes=64 * MIB, tmp_bytes=1 * MIB)


def test_a_time_limit_of_an_input_only_shortens() -> None:
    ours = limits(wall_time_s=10)
    assert ours.within(timeout_s=3).wall_time_s == 3
    assert ours.within(timeout_s=30) is ours
    assert ours.within(timeout_s=None) is ours


@pytest.mark.parametrize(
    "fields",
    [{"cpus": 0}, {"pids": 1}, {"wall_time_s": 0}, {"memory_bytes": 1}, {"output_bytes": 0}, {"idle_time_s": 0}, {"wall_time_s": float("inf")}, {"no_such": 1}],
)  # fmt: skip
def test_nonsense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Limits.model_validate(fields)


def test_sizes_can_be_written_as_people_do() -> None:
    assert limits(memory_bytes="512MiB").memory_bytes == 512 * MIB
