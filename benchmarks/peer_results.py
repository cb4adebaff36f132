"""What the samples of `peers` say: against the best of those that are there, and in one table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.results import NOT_AVAILABLE, Figure, Grid, Series, at_least, versus
from benchmarks.rounds import Unavailable

WARM_TIMES: Final = 40.0
CELL_TIMES: Final = 6.0
_OURS: Final = "ours"
_WORDS: Final = {
    "cold": "cold: `echo hello`, nothing to first output",
    "life": "cold: `echo hello`, nothing to container gone",
    "warm_command": "waiting sandbox: `echo hello`, acquire to first output",
    "warm_code": "waiting sandbox: `print(1)`, acquire to first output",
    "first_cell": "session that keeps variables: nothing to first cell done",
    "cell": "session that keeps variables: a cell",
    "command": "open session: `echo hello`",
    "burst": "20 at once, nothing to last first output",
}
_SECONDS: Final = "burst"


@dataclass(frozen=True, slots=True)
class _Claim:
    """By how many times ours is to be better than the best peer."""

    name: str
    ours: str
    theirs: str
    at_least: float
    more_is_better: bool = False


_CLAIMS: Final = (
    _Claim("cold terminal, open to first output: faster than the fastest peer", "cold", "cold", 1.0),
    _Claim(
        "parked terminal, acquire to first output: faster than the best peer's warm path for code",
        "warm_command",
        "warm_code",
        WARM_TIMES,
    ),
    _Claim(
        "parked terminal, acquire to first output: faster than the best peer's for a command",
        "warm_command",
        "warm_command",
        1.0,
    ),
    _Claim(
        "parked Python, `print(1)`: faster than the best peer's warm path for code",
        "warm_code",
        "warm_code",
        1.0,
    ),
    _Claim("Python, nothing to first cell: faster than the fastest peer", "first_cell", "first_cell", 1.0),
    _Claim("Python cell in a live session: faster than the fastest peer", "cell", "cell", CELL_TIMES),
    _Claim("command in an open session: faster than the fastest peer", "command", "command", 1.0),
    _Claim(
        "output without a terminal: faster than the fastest peer",
        "output",
        "output",
        1.0,
        more_is_better=True,
    ),
    _Claim("20 sandboxes at once: faster than the fastest peer", "burst", "burst", 1.0),
)


def figures(series: Mapping[str, Series], *, absent: Mapping[str, str]) -> list[Figure]:
    """Return ours against the best peer of each kind of work, and the peers that are not there."""
    gone = [
        Figure(name=f"peer: {name}", target="-", measured=f"{NOT_AVAILABLE}: {why}", value=None, met=None)
        for name, why in absent.items()
    ]
    return [*(_figure(series, claim) for claim in _CLAIMS), *gone]


def grids(series: Mapping[str, Series], absent: Mapping[str, Unavailable]) -> list[Grid]:
    """Return the medians of all, side by side."""
    columns = [*dict.fromkeys(contender for _, contender in _parts(series)), *absent]
    reasons = {name: each.reason for name, each in absent.items()}
    rows: dict[str, list[float | None]] = {
        words: [_median(series, work, column) for column in columns] for work, words in _WORDS.items()
    }
    output: dict[str, list[float | None]] = {
        "100 MiB of output": [_median(series, "output", column) for column in columns]
    }
    memory: dict[str, list[float | None]] = {
        "100 MiB of output: peak growth": [
            _median(series, "output", f"{column}, memory") for column in columns
        ]
    }
    return [
        Grid(title=title, unit=unit, columns=columns, rows=some, absent=reasons)
        for title, unit, some in (
            ("Peers: times", "ms", rows),
            ("Peers: speed of output", "MiB/s", output),
            ("Peers: memory of the reading process", "MiB", memory),
        )
    ]


def best_peer(series: Mapping[str, Series], work: str, *, more_is_better: bool = False) -> str | None:
    """Return the peer with the best median for a kind of work; None: no peer has done it."""
    medians = {
        contender: median
        for each, contender in _parts(series)
        if each == work
        and contender != _OURS
        and (median := series[f"{work}, {contender}"].median) is not None
    }
    choose = max if more_is_better else min
    return choose(medians, key=lambda name: medians[name]) if medians else None


def _figure(series: Mapping[str, Series], claim: _Claim) -> Figure:
    best = best_peer(series, claim.theirs, more_is_better=claim.more_is_better)
    if best is None:
        detail = f"{NOT_AVAILABLE}: no peer that does this is here (scripts/setup peers)"
        return at_least(claim.name, claim.at_least, None, unit=" times", detail=detail)
    ours, theirs = series[f"{claim.ours}, {_OURS}"], series[f"{claim.theirs}, {best}"]
    return at_least(
        claim.name,
        claim.at_least,
        _times(ours, theirs, more_is_better=claim.more_is_better),
        unit=" times",
        detail=f"{best}: {versus(ours, theirs)}",
    )


def _times(ours: Series, theirs: Series, *, more_is_better: bool) -> float | None:
    if len(ours.samples) != len(theirs.samples):  # of other rounds: there are no pairs
        return None if not ours.median or theirs.median is None else theirs.median / ours.median
    return ours.ratio_to(theirs) if more_is_better else theirs.ratio_to(ours)


def _parts(series: Mapping[str, Series]) -> Iterator[tuple[str, str]]:
    """Give the kind of work and the contender of each series that has both, and is no memory."""
    for name in series:
        work, *rest = name.split(", ")
        if len(rest) == 1:
            yield work, rest[0]


def _median(series: Mapping[str, Series], work: str, contender: str) -> float | None:
    found = series.get(f"{work}, {contender}")
    if found is None or found.median is None:
        return None
    return found.median * 1000 if work == _SECONDS else found.median
