"""What the warm pool is made of: demand, turns of cold starts, and waits that grow."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.retrying import growing_wait_s
from aeolus_sandbox.sandboxes.cold_starts import ColdStarts
from aeolus_sandbox.sandboxes.pool_demand import Demand


def test_demand_is_the_largest_burst_of_the_window() -> None:
    demand = Demand(60.0)
    assert demand.peak(0.0) == 0
    for moment in (0.0, 0.1, 1.9, 2.1, 30.0, 30.5):
        demand.note(moment)
    assert demand.peak(31.0) == 3
    assert demand.peak(61.0) == 2  # the first burst is over a minute old
    assert demand.peak(120.0) == 0


@given(st.lists(st.floats(0, 1000), max_size=300))
def test_demand_is_never_more_than_were_asked_for(moments: list[float]) -> None:
    demand = Demand(60.0)
    for moment in sorted(moments):
        demand.note(moment)
    now = max(moments, default=0.0)
    recent = [moment for moment in moments if moment >= now - 60.0]
    assert bool(recent) <= demand.peak(now) <= len(moments)
    assert len(demand._stretches) <= 31


@given(failures=st.integers(1, 10_000))
def test_waits_grow_up_to_a_limit(failures: int) -> None:
    wait_s = growing_wait_s(failures, first_s=1.0, longest_s=60.0)
    most_s = min(60.0, 2.0 ** min(failures - 1, 10))
    assert most_s / 2 <= wait_s <= most_s


async def test_cold_starts_have_their_turns_in_order_and_only_so_many_at_once() -> None:
    cold, order, ended = ColdStarts(2), [], []
    cold.on_end = lambda: ended.append(cold.busy_s is None)
    running = 0

    async def start(number: int) -> None:
        nonlocal running
        async with cold.turn():
            running += 1
            assert running <= 2
            order.append(number)
            await asyncio.sleep(0)
            running -= 1

    assert cold.busy_s is None
    async with asyncio.TaskGroup() as group:
        for number in range(9):
            group.create_task(start(number))
    assert order == list(range(9))
    assert ended == [False] * 8 + [True]


@pytest.mark.parametrize("waiters", [1, 3])
async def test_one_that_is_cancelled_while_it_waits_gives_its_turn_on(waiters: int) -> None:
    cold = ColdStarts(1)
    entered = asyncio.Event()

    async def start() -> None:
        async with cold.turn():
            entered.set()

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        async with cold.turn():
            cancelled = [group.create_task(start()) for _ in range(waiters)]
            await asyncio.sleep(0)
            for task in cancelled:
                task.cancel()
            group.create_task(start())
            await asyncio.sleep(0)
            assert not entered.is_set()
        await entered.wait()
    assert cold.busy_s is None
