"""Which benchmarks there are, and how long each may take: all that run by default fit into ten minutes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from benchmarks import (
    cell,
    churn,
    density,
    events,
    imports,
    languages,
    latency,
    overhead,
    peers,
    start,
    tailer,
    throughput,
)
from benchmarks.results import Benchmark
from benchmarks.rounds import Plan

ALL_WITHIN_S: Final = 600.0
"""What the budgets of all that run by default must not exceed together."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A benchmark."""

    measure: Callable[[Plan], Awaitable[Benchmark]]
    budget_s: float
    """After so many seconds no new round begins, once there have been three; so the whole fits."""
    says: str
    by_default: bool = True
    """Whether it runs where no name is given; what others measure as well runs by name alone."""


BENCHMARKS: Final[dict[str, Entry]] = {
    "overhead": Entry(
        overhead.measure, 60, "what isolation costs, per kind of work: bare, runc, hardened, gVisor"
    ),
    "latency": Entry(
        latency.measure, 190, "open to first chunk, cold and parked: terminal, every language, bursts"
    ),
    "throughput": Entry(throughput.measure, 60, "MB/s of output through each policy; host memory"),
    "density": Entry(density.measure, 90, "how many idle sessions fit, and what each costs"),
    "churn": Entry(churn.measure, 70, "sessions a second for a minute, and what they leave behind"),
    "tailer": Entry(tailer.measure, 85, "lines a second of the log tailer, and how soon a new line is there"),
    "events": Entry(events.measure, 30, "events of an agent's run through its consumers"),
    "import": Entry(imports.measure, 8, "what the import costs"),
    "cell": Entry(
        cell.measure, 20, "a Python cell, against jupyter_client inside the container", by_default=False
    ),
    "start": Entry(
        start.measure, 60, "what a start is made of, and what each barrier costs", by_default=False
    ),
    "languages": Entry(languages.measure, 75, "more about the kernel of each language", by_default=False),
    "peers": Entry(
        peers.measure, 300, "the same work through other libraries (scripts/setup peers)", by_default=False
    ),
}


def by_default() -> list[str]:
    """Return the names of those that run where none is given."""
    return [name for name, entry in BENCHMARKS.items() if entry.by_default]


def total_s() -> float:
    """Return how long all of them may take together."""
    return sum(BENCHMARKS[name].budget_s for name in by_default())
