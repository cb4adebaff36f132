"""Bursts in benchmarks: what is timed, and how many start at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks.bursts import best_at_once, burst, total
from benchmarks.results import Series


class Door:
    """Counts those that start and those that are open."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.starting = self.most_starting = self.open = self.most_open = self.begun = 0
        self._fails_at = fails_at

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        self.begun += 1
        if self.begun == self._fails_at:
            raise RuntimeError("no more")
        self.starting += 1
        self.most_starting = max(self.most_starting, self.starting)
        await asyncio.sleep(0)
        self.starting -= 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            yield
        finally:
            self.open -= 1


async def test_all_of_a_burst_are_open_before_the_first_is_closed() -> None:
    door = Door()
    times = await burst(door.opened, 7)
    assert len(times) == 7
    assert min(times) >= 0
    assert (door.most_starting, door.most_open, door.open) == (7, 7, 0)


async def test_no_more_than_asked_start_at_once_and_all_are_held() -> None:
    door = Door()
    await burst(door.opened, 7, at_once=2)
    assert (door.most_starting, door.most_open) == (2, 7)


async def test_one_that_fails_fails_the_burst_and_leaves_none_open() -> None:
    door = Door(fails_at=3)
    with pytest.raises(ExceptionGroup):
        await burst(door.opened, 5)
    assert door.open == 0


async def test_each_one_s_time_is_kept_beside_the_last_one_s() -> None:
    each = Series(unit="ms")
    last = await total(Door().opened, 4, each=each)()
    assert len(each.good) == 4
    assert last == max(each.good)


async def test_the_best_number_at_once_is_the_one_with_the_least_time_for_each() -> None:
    door = Door()
    at_once, cost = await best_at_once(door.opened, [1, 2, 4])
    assert set(cost) == {1, 2, 4}
    assert cost[at_once] == min(cost.values())
    assert door.most_starting == 4
