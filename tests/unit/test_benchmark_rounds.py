"""Rounds: one sample of each contender in every round, failures and absences told apart, and an end in time."""

import random
import time
from collections.abc import Mapping

from benchmarks.registry import ALL_WITHIN_S, BENCHMARKS, by_default, total_s
from benchmarks.rounds import FEWEST_ROUNDS, Contender, Plan, Unavailable, interleaved, interleaved_parts


async def _one() -> float:
    return 1.0


async def _broken() -> float:
    raise RuntimeError("it broke")


async def test_every_round_has_one_sample_of_each_contender_in_an_order_of_its_own() -> None:
    orders: list[str] = []

    def taker(name: str) -> Contender:
        async def once() -> float:
            orders.append(name)
            return 1.0

        return once

    plan = Plan(quick=False, shuffle=random.Random(7))
    series = await interleaved(plan, {name: taker(name) for name in "abc"}, rounds=20)
    assert all(each.samples == [1.0] * 20 for each in series.values())
    rounds = ["".join(orders[start : start + 3]) for start in range(0, len(orders), 3)]
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert len(set(rounds)) > 1


async def test_failed_round_is_counted_and_gives_no_sample() -> None:
    series = await interleaved(Plan(quick=True), {"good": _one, "broken": _broken}, rounds=2)
    assert series["good"].samples == [1.0, 1.0]
    assert series["broken"].samples == [None, None]
    assert series["broken"].failures == [f"round {n}: RuntimeError('it broke')" for n in (1, 2)]


async def test_contender_that_never_works_is_not_tried_for_ever() -> None:
    series = await interleaved(Plan(quick=False), {"broken": _broken}, rounds=20)
    assert len(series["broken"].samples) == 20
    assert len(series["broken"].failures) == 5


async def test_unavailable_contender_is_not_run_and_keeps_its_reason() -> None:
    contenders: dict[str, Contender | Unavailable] = {"good": _one, "missing": Unavailable("no runsc here")}
    series = await interleaved(Plan(quick=True), contenders, rounds=2)
    assert series["missing"].absence == "not available: no runsc here"
    assert series["missing"].samples == []
    assert series["good"].median == 1.0


async def test_parts_of_a_round_stay_together_also_when_it_fails() -> None:
    rounds = iter([{"cpu": 1.0, "disk": 10.0}, None, {"cpu": 3.0, "disk": 30.0}])

    async def once() -> Mapping[str, float]:
        if (sample := next(rounds)) is None:
            raise RuntimeError("it broke")
        return sample

    measured = await interleaved_parts(
        Plan(quick=False), {"box": once}, units={"cpu": "ms", "disk": "MiB"}, rounds=3, warm_up=0
    )
    assert measured["box"]["cpu"].samples == [1.0, None, 3.0]
    assert measured["box"]["disk"].samples == [10.0, None, 30.0]
    assert measured["box"]["disk"].unit == "MiB"
    assert len(measured["box"]["cpu"].failures) == len(measured["box"]["disk"].failures) == 1


async def test_no_round_begins_when_the_time_is_up_but_there_are_some() -> None:
    plan = Plan(quick=False, ends_at=time.monotonic() - 1)
    series = await interleaved(plan, {"good": _one}, rounds=1000)
    assert len(series["good"].samples) == FEWEST_ROUNDS


def test_all_benchmarks_together_stay_below_ten_minutes() -> None:
    assert 0 < total_s() < ALL_WITHIN_S == 600
    assert total_s() == sum(BENCHMARKS[name].budget_s for name in by_default())
    assert all(entry.budget_s > 0 for entry in BENCHMARKS.values())


def test_what_the_table_of_figures_needs_runs_by_default() -> None:
    assert {"overhead", "latency", "throughput", "density", "churn", "tailer", "events"} <= set(by_default())
