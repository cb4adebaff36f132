"""What a run of the benchmarks leaves behind: every sample, the figures made of them, and the machine."""

import statistics
from typing import Any, Final, Self

from pydantic import BaseModel, computed_field, model_validator

NOT_AVAILABLE: Final = "not available"
"""What stands in the place of every number of a contender that is not there."""


class Series(BaseModel):
    """The samples of one contender, one for each round."""

    unit: str
    samples: list[float | None] = []
    """In the order of the rounds; None: this one failed."""
    failures: list[str] = []
    unavailable: str | None = None
    """Why this contender cannot run on this machine; then it has no sample, and so no number."""

    @model_validator(mode="after")
    def _unavailable_has_no_numbers(self) -> Self:
        if self.unavailable is not None and self.samples:
            msg = f"a contender that is not available ({self.unavailable}) cannot have samples"
            raise ValueError(msg)
        return self

    @property
    def good(self) -> list[float]:
        """The samples that did not fail."""
        return [] if self.unavailable else [sample for sample in self.samples if sample is not None]

    @property
    def absence(self) -> str | None:
        """What to say in the place of a number, with the reason; None where the contender is there."""
        return None if self.unavailable is None else f"{NOT_AVAILABLE}: {self.unavailable}"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def median(self) -> float | None:
        """The middle one of the good samples."""
        return statistics.median(self.good) if self.good else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def p95(self) -> float | None:
        """What 95 % of the good samples do not exceed."""
        return _quantile(self.good, 95)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def p99(self) -> float | None:
        """What 99 % of the good samples do not exceed; of fewer than a hundred, nearly the largest."""
        return _quantile(self.good, 99)

    def ratio_to(self, other: "Series") -> float | None:
        """Return the median, over the rounds in which both are good, of this one's sample over the other's.

        Pairs of one round, seconds apart, have met the same machine: what else it does mostly cancels out.
        """
        if self.unavailable or other.unavailable:
            return None
        pairs = zip(self.samples, other.samples, strict=True)
        ratios = [mine / others for mine, others in pairs if mine is not None and others]
        return statistics.median(ratios) if ratios else None


class Figure(BaseModel):
    """One line of the table."""

    name: str
    target: str
    measured: str
    value: float | None
    """The number that the target is about; None: it could not be measured."""
    met: bool | None


class Grid(BaseModel):
    """Numbers by two things: a row for each kind of work, a column for each contender."""

    title: str
    unit: str
    columns: list[str]
    rows: dict[str, list[float | None]]
    """A number for each column; None: it could not be measured."""
    absent: dict[str, str] = {}
    """Columns of contenders that are not available, and why."""
    even: float | None = None
    """Where a chart draws its line: 1 for ratios."""

    @model_validator(mode="after")
    def _rows_fit_the_columns(self) -> Self:
        for name, row in self.rows.items():
            if len(row) != len(self.columns):
                msg = f"row {name!r} has {len(row)} numbers for {len(self.columns)} columns"
                raise ValueError(msg)
            for column, number in zip(self.columns, row, strict=True):
                if column in self.absent and number is not None:
                    msg = f"{column!r} is not available and has a number in row {name!r}"
                    raise ValueError(msg)
        return self


class Benchmark(BaseModel):
    """What one benchmark gave."""

    name: str
    series: dict[str, Series]
    figures: list[Figure]
    grids: list[Grid] = []
    notes: dict[str, Any] = {}
    error: str | None = None
    """Why it ended before it had measured anything."""
    seconds: float | None = None
    budget_s: float | None = None

    @property
    def failed(self) -> list[str]:
        """The contenders that are there, and of which no round went well."""
        return [name for name, each in self.series.items() if not (each.good or each.unavailable)]


class Machine(BaseModel):
    """Where it was measured."""

    processor: str
    processors: int
    memory_gib: float
    system: str
    python: str
    engine: str
    runtimes: list[str] = []
    """What the engine can start containers with."""
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float] | None = None

    def in_words(self) -> str:
        """Return one sentence."""
        runtimes = f"; runtimes: {', '.join(self.runtimes)}" if self.runtimes else ""
        return (
            f"{self.processors} x {self.processor}, {self.memory_gib:.0f} GiB, {self.system}, Python {self.python}, "
            f"{self.engine}{runtimes}"
        )


class Run(BaseModel):
    """One run: what the JSON file holds."""

    version: str
    started: str
    command: str
    quick: bool
    seconds: float
    machine: Machine
    benchmarks: list[Benchmark]


def at_most(name: str, limit: float, value: float | None, *, unit: str = "", detail: str = "") -> Figure:
    """Return a figure that must not exceed `limit`."""
    met = None if value is None else value <= limit
    return Figure(
        name=name, target=f"≤ {limit:g}{unit}", measured=_shown(value, unit, detail), value=value, met=met
    )


def at_least(name: str, limit: float, value: float | None, *, unit: str = "", detail: str = "") -> Figure:
    """Return a figure that must reach `limit`."""
    met = None if value is None else value >= limit
    return Figure(
        name=name, target=f"≥ {limit:g}{unit}", measured=_shown(value, unit, detail), value=value, met=met
    )


def versus(mine: Series, other: Series) -> str:
    """Return the medians of two contenders in words, or that one of them is not available, and why."""
    return (
        mine.absence or other.absence or f"{number(mine.median)} against {number(other.median)} {mine.unit}"
    )


def number(value: float | None) -> str:
    """Return a number with three digits, or with all before the point."""
    if value is None:
        return "?"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _shown(value: float | None, unit: str, detail: str) -> str:
    if value is None and detail.startswith(NOT_AVAILABLE):
        return detail
    shown = "not measured" if value is None else f"{number(value)}{unit}"
    return f"{shown} ({detail})" if detail else shown


def _quantile(samples: list[float], hundredths: int) -> float | None:
    if len(samples) < 2:
        return samples[0] if samples else None
    return statistics.quantiles(samples, n=100, method="inclusive")[hundredths - 1]
