"""Churn: how many sessions a second can be opened and ended, and what of them is left, which must be nothing."""

import sys
from typing import Final

from benchmarks.child import output_of
from benchmarks.churn_run import AT_ONCE, Measured
from benchmarks.results import Benchmark, Figure, Series, at_most
from benchmarks.rounds import Plan

SECONDS: Final = 60.0
QUICK_S: Final = 5.0
GROWTH_TARGET: Final = 2
"""How much more of anything there may be while the manager is open, for 100 sessions: connections come and go."""
MEMORY_TARGET_KIB: Final = 2
_ENGINES: Final = ("engine's files", "engine's goroutines")


async def measure(plan: Plan) -> Benchmark:
    """Measure once, for a minute."""
    seconds = QUICK_S if plan.quick else SECONDS
    plan.say(f"{seconds:.0f} s of sessions, {AT_ONCE} at once")
    output = await output_of(sys.executable, "-m", "benchmarks.churn_run", str(seconds))
    measured = Measured.model_validate_json(output)
    rate = measured.sessions / measured.seconds
    series = Series(unit="sessions/s", samples=[rate], failures=measured.failures)
    return Benchmark(
        name="churn",
        series={f"{AT_ONCE} at once": series},
        figures=_figures(measured, rate),
        notes=measured.model_dump(),
    )


def _figures(measured: Measured, rate: float) -> list[Figure]:
    left = {name: more for name, more in measured.left.items() if name not in _ENGINES}
    growth = {name: 100 * more / measured.sessions for name, more in measured.grown.items()}
    fastest = max(growth, key=lambda name: growth[name], default=None)
    return [
        Figure(
            name=f"sessions opened and ended, {AT_ONCE} at once",
            target="-",
            measured=f"{rate:.3g} a second ({measured.sessions} in {measured.seconds:.0f} s)",
            value=rate,
            met=None,
        ),
        at_most("sessions that failed", 0, len(measured.failures)),
        Figure(
            name=f"left of {measured.sessions} sessions when their manager has closed",
            target="none",
            measured=_in_words(left) or "none",
            value=sum(left.values()),
            met=not left,
        ),
        at_most(
            "growth while the manager goes on, for 100 sessions",
            GROWTH_TARGET,
            round(max(growth.values(), default=0.0), 2),
            detail=f"{fastest}; all: {_in_words(measured.grown)}" if fastest else "of nothing",
        ),
        at_most(
            "host memory: growth with each session",
            MEMORY_TARGET_KIB,
            round(measured.bytes_each / 2**10, 2),
            unit=" KiB",
        ),
    ]


def _in_words(levels: dict[str, int]) -> str:
    return ", ".join(f"{more} {name}" for name, more in levels.items())
