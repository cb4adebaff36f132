"""Measuring contenders side by side: one of each in every round, in shuffled order."""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from benchmarks.results import Series

Contender = Callable[[], Awaitable[float]]
"""Does the work once and returns what it measured."""
PartsContender = Callable[[], Awaitable[Mapping[str, float]]]
"""Does several kinds of work once and returns what it measured of each."""

TIMEOUT_S: Final = 90.0
"""How long one sample may take."""
FEWEST_ROUNDS: Final = 3
"""How many rounds there are even where the time is up."""
_HOPELESS: Final = 5
"""A contender that has failed so many times, and has no good sample, is not tried again."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Stands in the place of a contender that cannot run on this machine, and says why."""

    reason: str


@dataclass(frozen=True)
class Plan:
    """How thorough a run is."""

    quick: bool
    shuffle: random.Random = field(default_factory=random.Random)
    say: Callable[[str], None] = lambda _: None
    """Tells the person who waits what is going on."""
    full: bool = False
    """Whether sizes are those that take minutes."""
    ends_at: float = math.inf
    """When the time for this benchmark is up, by `time.monotonic`: no new round begins then."""

    def rounds(self, usual: int) -> int:
        """Return how many rounds to make where `usual` are usual."""
        return 2 if self.quick else usual

    @property
    def is_time_up(self) -> bool:
        """Whether this benchmark has used its time."""
        return time.monotonic() >= self.ends_at


async def interleaved(
    plan: Plan,
    contenders: Mapping[str, Contender | Unavailable],
    *,
    rounds: int,
    unit: str = "ms",
    warm_up: int = 1,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Series]:
    """Measure all contenders, `rounds` times each, after `warm_up` rounds that do not count (a quick plan has none).

    There are fewer rounds where the plan's time is up before, but not fewer than three.
    """
    parts = {
        name: each if isinstance(each, Unavailable) else _whole(each) for name, each in contenders.items()
    }
    measured = await interleaved_parts(
        plan, parts, units={"": unit}, rounds=rounds, warm_up=warm_up, timeout_s=timeout_s
    )
    return {name: series[""] for name, series in measured.items()}


async def interleaved_parts(
    plan: Plan,
    contenders: Mapping[str, PartsContender | Unavailable],
    *,
    units: Mapping[str, str],
    rounds: int,
    warm_up: int = 1,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, dict[str, Series]]:
    """Measure contenders that do several kinds of work at a time: a series for each contender and each kind.

    Args:
        plan: How thorough to be.
        contenders: By name.
        units: The kinds of work, and the unit of each.
        rounds: How many rounds count.
        warm_up: How many rounds before them do not.
        timeout_s: How long one contender may take in one round.
    """
    series = {name: _empty(each, units) for name, each in contenders.items()}
    present = {name: each for name, each in contenders.items() if not isinstance(each, Unavailable)}
    for number in range(0 if plan.quick else -warm_up, rounds):
        if number >= FEWEST_ROUNDS and plan.is_time_up:
            break
        order = list(present)
        plan.shuffle.shuffle(order)
        for name in order:
            plan.say(f"round {max(0, number + 1)} of {rounds}: {name}")
            sample = await _sample(present[name], series[name], number, timeout_s)
            if number >= 0:
                for part, each in series[name].items():
                    each.samples.append(sample.get(part))
    return series


def _empty(contender: PartsContender | Unavailable, units: Mapping[str, str]) -> dict[str, Series]:
    unavailable = contender.reason if isinstance(contender, Unavailable) else None
    return {part: Series(unit=unit, unavailable=unavailable) for part, unit in units.items()}


def _whole(contender: Contender) -> PartsContender:
    async def once() -> Mapping[str, float]:
        return {"": await contender()}

    return once


async def _sample(
    contender: PartsContender, series: Mapping[str, Series], number: int, timeout_s: float
) -> Mapping[str, float]:
    failures = next(iter(series.values())).failures
    if len(failures) >= _HOPELESS and not any(each.good for each in series.values()):
        return {}
    try:
        async with asyncio.timeout(timeout_s):
            return await contender()
    except Exception as error:  # noqa: BLE001 - a failure is a result: it is counted and told
        for each in series.values():
            each.failures.append(f"round {number + 1}: {error!r}")
        return {}
