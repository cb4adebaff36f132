"""The numbers of a run: what is counted, what is left out, and what never becomes a number."""

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from benchmarks.results import Benchmark, Figure, Grid, Series, at_least, at_most, versus

MISSING = Series(unit="ms", unavailable="no runsc here")


@pytest.mark.parametrize(
    ("samples", "p95", "p99"),
    [
        ([], None, None),
        ([None], None, None),
        ([7.0], 7.0, 7.0),
        ([1.0, 2.0], 1.95, 1.99),
        ([float(n) for n in range(101)], 95.0, 99.0),
        ([5.0] * 20, 5.0, 5.0),
    ],
)
def test_percentiles_of_few_samples_never_exceed_the_largest(
    samples: list[float | None], p95: float | None, p99: float | None
) -> None:
    series = Series(unit="ms", samples=samples)
    assert series.p95 == (None if p95 is None else pytest.approx(p95))
    assert series.p99 == (None if p99 is None else pytest.approx(p99))


def test_failed_sample_is_no_number_and_is_counted() -> None:
    series = Series(unit="ms", samples=[1.0, None, 3.0], failures=["round 2: it broke"])
    assert series.good == [1.0, 3.0]
    assert series.median == 2.0


def test_ratio_is_taken_within_rounds_and_leaves_failures_out() -> None:
    mine = Series(unit="ms", samples=[10.0, 200.0, None, 30.0])
    other = Series(unit="ms", samples=[5.0, 100.0, 1.0, None])
    assert mine.ratio_to(other) == 2.0
    assert Series(unit="ms", samples=[None]).ratio_to(Series(unit="ms", samples=[1.0])) is None


def test_unavailable_contender_has_no_number_of_any_kind() -> None:
    there = Series(unit="ms", samples=[1.0, 2.0])
    assert (MISSING.median, MISSING.p95, MISSING.p99) == (None, None, None)
    assert MISSING.ratio_to(there) is None
    assert there.ratio_to(MISSING) is None
    with pytest.raises(ValidationError, match="cannot have samples"):
        Series(unit="ms", unavailable="no runsc here", samples=[1.0])
    sneaked_in = Series(unit="ms", unavailable="no runsc here")
    sneaked_in.samples.append(1.0)
    assert sneaked_in.good == []
    assert sneaked_in.median is None


def test_unavailable_contender_has_not_failed_and_an_absent_sample_has() -> None:
    series = {"missing": MISSING, "broken": Series(unit="ms", samples=[None], failures=["round 1: no"])}
    assert Benchmark(name="any", series=series, figures=[]).failed == ["broken"]


@pytest.mark.parametrize("figure", [at_most, at_least])
def test_figure_about_an_unavailable_contender_says_why_and_is_neither_met_nor_missed(
    figure: Callable[..., Figure],
) -> None:
    there = Series(unit="ms", samples=[1.0])
    for mine, other in ((there, MISSING), (MISSING, there)):
        made = figure("x", 1.1, mine.ratio_to(other), unit=" times", detail=versus(mine, other))
        assert made.measured == "not available: no runsc here"
        assert made.value is None
        assert made.met is None


def test_figure_whose_contender_always_failed_is_not_measured() -> None:
    failed = Series(unit="ms", samples=[None])
    made = at_most("x", 1.1, failed.ratio_to(failed), detail=versus(failed, failed))
    assert made.measured == "not measured (? against ? ms)"
    assert made.met is None


def test_grid_takes_no_number_in_the_column_of_an_unavailable_contender() -> None:
    with pytest.raises(ValidationError, match="not available and has a number"):
        Grid(title="x", unit="times", columns=["a"], rows={"work": [1.0]}, absent={"a": "not here"})
    with pytest.raises(ValidationError, match="2 numbers for 1 columns"):
        Grid(title="x", unit="times", columns=["a"], rows={"work": [1.0, 2.0]})
