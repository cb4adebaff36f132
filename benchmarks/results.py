"""What a run of the benchmarks leaves behind: every sample, the figures made of them, and the machine."""

import statistics
from typing import Any

from pydantic import BaseModel, computed_field


class Series(BaseModel):
    """The samples of one contender, one for each round."""

    unit: str
    samples: list[float | None] = []
    """In the order of the rounds; None: this one failed."""
    failures: list[str] = []

    @property
    def good(self) -> list[float]:
        """The samples that did not fail."""
        return [sample for sample in self.samples if sample is not None]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def median(self) -> float | None:
        """The middle one of the good samples."""
        return statistics.median(self.good) if self.good else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def p95(self) -> float | None:
        """The sample that 95 % of the good ones do not exceed."""
        if len(self.good) < 2:
            return self.median
        return statistics.quantiles(self.good, n=20, method="inclusive")[-1]

    def ratio_to(self, other: "Series") -> float | None:
        """Return the median, over the rounds in which both are good, of this one's sample over the other's.

        Pairs of one round, seconds apart, have met the same machine: what else it does mostly cancels out.
        """
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


class Benchmark(BaseModel):
    """What one benchmark gave."""

    name: str
    series: dict[str, Series]
    figures: list[Figure]
    notes: dict[str, Any] = {}

    @property
    def failed(self) -> list[str]:
        """The contenders of which no round went well."""
        return [name for name, series in self.series.items() if not series.good]


class Machine(BaseModel):
    """Where it was measured."""

    processor: str
    processors: int
    memory_gib: float
    system: str
    python: str
    engine: str
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float] | None = None

    def in_words(self) -> str:
        """Return one sentence."""
        return (
            f"{self.processors} x {self.processor}, {self.memory_gib:.0f} GiB, {self.system}, Python {self.python}, "
            f"{self.engine}"
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
    """Return the medians of two contenders in words."""
    return f"{_number(mine.median)} against {_number(other.median)} {mine.unit}"


def _shown(value: float | None, unit: str, detail: str) -> str:
    number = "not measured" if value is None else f"{_number(value)}{unit}"
    return f"{number} ({detail})" if detail else number


def _number(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
