"""Measuring contenders side by side: one of each in every round, in shuffled order."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from benchmarks.results import Series

Contender = Callable[[], Awaitable[float]]
"""Does the work once and returns what it measured."""

TIMEOUT_S: Final = 90.0
"""How long one sample may take."""
_HOPELESS: Final = 5
"""A contender that has failed so many times, and has no good sample, is not tried again."""


@dataclass(frozen=True)
class Plan:
    """How thorough a run is."""

    quick: bool
    shuffle: random.Random = field(default_factory=random.Random)
    say: Callable[[str], None] = lambda _: None
    """Tells the person who waits what is going on."""

    def rounds(self, usual: int) -> int:
        """Return how many rounds to make where `usual` are usual."""
        return 2 if self.quick else usual


async def interleaved(
    plan: Plan,
    contenders: Mapping[str, Contender],
    *,
    rounds: int,
    unit: str = "ms",
    warm_up: int = 1,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Series]:
    """Measure all contenders, `rounds` times each, after `warm_up` rounds that do not count (a quick plan has none)."""
    series = {name: Series(unit=unit) for name in contenders}
    for number in range(0 if plan.quick else -warm_up, rounds):
        order = list(contenders)
        plan.shuffle.shuffle(order)
        for name in order:
            plan.say(f"round {max(0, number + 1)} of {rounds}: {name}")
            sample = await _sample(contenders[name], series[name], number, timeout_s)
            if number >= 0:
                series[name].samples.append(sample)
    return series


async def _sample(contender: Contender, series: Series, number: int, timeout_s: float) -> float | None:
    if len(series.failures) >= _HOPELESS and not series.good:
        return None
    try:
        async with asyncio.timeout(timeout_s):
            return await contender()
    except Exception as error:  # noqa: BLE001 - a failure is a result: it is counted and told
        series.failures.append(f"round {number + 1}: {error!r}")
        return None
