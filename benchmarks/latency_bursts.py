"""The part of `latency` in which many ask at once, or shortly after each other."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import aiodocker

from aeolus_sandbox import SessionManager
from aeolus_sandbox.engine.docker import DockerEngine
from benchmarks.bursts import (
    GREETING_AND_STAYING,
    Opening,
    after_removals,
    bare_opening,
    best_at_once,
    session_opening,
    total,
)
from benchmarks.first_chunk import terminal
from benchmarks.results import Figure, Series, at_most, number, versus
from benchmarks.rounds import Contender, Plan, interleaved

REFILL_CONCURRENCY: Final = 4
TARGET: Final = 1.1
ROUNDS: Final = 2
COLD_ROUNDS: Final = 2
APART_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many ask at once."""

    pool: int
    large: int
    """More than the pool has."""
    small: int
    cold: int
    trials: tuple[int, ...]
    """With how many at once bare starts are tried."""

    @property
    def rest(self) -> int:
        """How many of a large burst find nothing in the pool."""
        return self.large - self.pool


USUAL: Final = Sizes(pool=20, large=50, small=10, cold=20, trials=(2, 4, 8))
QUICK: Final = Sizes(pool=2, large=5, small=2, cold=3, trials=(2,))


@dataclass(frozen=True, slots=True)
class Bursts:
    """What bursts gave."""

    series: dict[str, Series]
    figures: list[Figure]
    notes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Sides:
    """How one is started on each side: from a pool, by a manager without one, and by aiodocker alone."""

    pooled: SessionManager
    plain: SessionManager
    engine: DockerEngine
    warm: Opening
    cold: Opening
    bare: Opening

    def settled(self, contender: Contender) -> Contender:
        """Return a contender that begins when nothing of the one before is left, and the pool is full."""
        return after_removals(contender, self.pooled, self.plain, engine=self.engine)


async def measure(
    plan: Plan,
    pooled: SessionManager,
    plain: SessionManager,
    *,
    docker: aiodocker.Docker,
    engine: DockerEngine,
) -> Bursts:
    """Measure bursts of terminals on both managers, and of bare containers."""
    sizes = QUICK if plan.quick else USUAL
    work = terminal(command=GREETING_AND_STAYING)
    sides = _Sides(
        pooled,
        plain,
        engine,
        warm=session_opening(pooled, work),
        cold=session_opening(plain, work),
        bare=bare_opening(docker),
    )
    each: dict[str, Series] = defaultdict(lambda: Series(unit="ms"))
    series = await _cold(plan, sides, sizes, each)
    plan.say("bare starts, several at once")
    at_once, cost = await best_at_once(sides.bare, sizes.trials)
    await pooled.pool.keep(work.tool, work.tool_input, minimum=sizes.pool)
    try:
        series |= await _with_pool(plan, sides, sizes, each, at_once)
    finally:
        await pooled.pool.keep(work.tool, work.tool_input, minimum=0)
    every = {f"each of: {name}": one for name, one in each.items()}
    notes = {"best_bare_at_once": at_once, "bare_ms_each_by_at_once": cost}
    return Bursts(series | every, list(_figures(series, each, sizes)), notes)


async def _cold(plan: Plan, sides: _Sides, sizes: Sizes, each: dict[str, Series]) -> dict[str, Series]:
    name = f"burst of {sizes.cold}, cold"
    contenders = {
        name: sides.settled(total(sides.cold, sizes.cold, each=each[name])),
        f"burst of {sizes.cold}, bare aiodocker": sides.settled(total(sides.bare, sizes.cold)),
    }
    return await interleaved(plan, contenders, rounds=plan.rounds(COLD_ROUNDS))


async def _with_pool(
    plan: Plan, sides: _Sides, sizes: Sizes, each: dict[str, Series], at_once: int
) -> dict[str, Series]:
    parked = f"a pool of {sizes.pool}"
    large, small = f"burst of {sizes.large}, {parked}", f"burst of {sizes.small}, {parked}"
    large_cold, small_cold = f"burst of {sizes.large}, cold", f"burst of {sizes.small}, cold"
    staggered = f"{sizes.small} staggered by {APART_S * 1000:.0f} ms"
    apart = partial(total, count=sizes.small, apart_s=APART_S)
    contenders = {
        large: total(sides.warm, sizes.large, each=each[large]),
        small: total(sides.warm, sizes.small, each=each[small]),
        large_cold: total(sides.cold, sizes.large, each=each[large_cold]),
        small_cold: total(sides.cold, sizes.small, each=each[small_cold]),
        f"{staggered}, {parked}": apart(sides.warm, each=each[f"{staggered}, {parked}"]),
        f"{staggered}, cold": apart(sides.cold, each=each[f"{staggered}, cold"]),
        f"{sizes.rest} bare, at best concurrency": total(sides.bare, sizes.rest, at_once=at_once),
    }
    quiet = {name: sides.settled(contender) for name, contender in contenders.items()}
    return await interleaved(plan, quiet, rounds=plan.rounds(ROUNDS), warm_up=0)


def _figures(series: dict[str, Series], each: dict[str, Series], sizes: Sizes) -> Iterator[Figure]:
    ours, bare = series[f"burst of {sizes.cold}, cold"], series[f"burst of {sizes.cold}, bare aiodocker"]
    name = f"{sizes.cold} terminals at once, cold, until the last has its output, against bare aiodocker"
    yield at_most(name, TARGET, ours.ratio_to(bare), unit=" times", detail=versus(ours, bare))
    ours = series[f"burst of {sizes.large}, a pool of {sizes.pool}"]
    bare = series[f"{sizes.rest} bare, at best concurrency"]
    name = (
        f"{sizes.large} terminals at once with a pool of {sizes.pool}, against {sizes.rest} bare cold starts at "
        "their best concurrency"
    )
    yield at_most(name, TARGET, ours.ratio_to(bare), unit=" times", detail=versus(ours, bare))
    failures = [failure for name, one in series.items() if "bare" not in name for failure in one.failures]
    yield at_most("failures in bursts", 0, len(failures))
    for name, one in each.items():
        shown = (
            "not measured"
            if one.median is None
            else f"{number(one.median)} ms (p95 {number(one.p95)} ms, p99 {number(one.p99)} ms)"
        )
        yield Figure(
            name=f"{name}: each, to its first chunk", target="-", measured=shown, value=one.median, met=None
        )
