"""Bursts: many sessions at once or shortly after each other; the sample is the time until all have their first output."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final

import aiodocker

from aeolus_sandbox import SessionManager, TerminalInput
from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from benchmarks.bare import GREETING, config_of, started
from benchmarks.first_chunk import Work, expect
from benchmarks.results import Series
from benchmarks.rounds import Contender

Opening = Callable[[], AbstractAsyncContextManager[None]]
"""Starts one, waits for its first output, and holds it until it is left."""

GREETING_AND_STAYING: Final = f"{GREETING}; read -r _"
"""What is run in a burst: no container ends while others still start, which would cost the engine as much as a start."""
_GONE_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.1
_TRIAL_WAVES: Final = 2


def session_opening(manager: SessionManager, work: Work) -> Opening:
    """Return how a session is opened."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        async with await manager.open(work.tool, work.tool_input) as session:
            await expect(session, work)
            yield

    return opened


def bare_opening(docker: aiodocker.Docker) -> Opening:
    """Return how a container with the same command on a terminal is started by aiodocker alone."""
    config = config_of("shell", TerminalInput(command=GREETING_AND_STAYING).argv, tty=True)

    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        async with started(docker, config) as stream:
            message = await stream.read_out()
            assert message is not None
            assert message.data.startswith(b"hello"), message
            yield

    return opened


async def burst(
    opening: Opening, count: int, *, at_once: int | None = None, apart_s: float = 0.0
) -> list[float]:
    """Start `count` of them and return how long each took until its output, in seconds.

    Nothing is closed before the last one has its output, so that no removal is in the way of a start. Each time counts
    from when that one was due.

    Args:
        opening: Starts one.
        count: How many.
        at_once: How many may be starting at the same time; None: all.
        apart_s: How long after each other they are due.
    """
    slots = asyncio.Semaphore(at_once or count)
    waiting = count
    all_there = asyncio.Event()
    times: list[float] = []

    async def one(number: int) -> None:
        nonlocal waiting
        await asyncio.sleep(number * apart_s)
        began = time.perf_counter()
        async with AsyncExitStack() as held:
            async with slots:
                await held.enter_async_context(opening())
            times.append(time.perf_counter() - began)
            waiting -= 1
            if not waiting:
                all_there.set()
            await all_there.wait()

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one(number))
    return times


def total(
    opening: Opening,
    count: int,
    *,
    at_once: int | None = None,
    apart_s: float = 0.0,
    each: Series | None = None,
) -> Contender:
    """Return the time until the last of a burst has its output; `each` takes every one's own, in milliseconds."""

    async def once() -> float:
        times = await burst(opening, count, at_once=at_once, apart_s=apart_s)
        if each is not None:
            each.samples += [took * 1000 for took in times]
        return max(times) * 1000

    return once


async def best_at_once(opening: Opening, candidates: Sequence[int]) -> tuple[int, dict[int, float]]:
    """Return with how many at once starts are fastest, and the milliseconds of one start with each candidate."""
    cost = {}
    for at_once in candidates:
        count = at_once * _TRIAL_WAVES
        cost[at_once] = max(await burst(opening, count, at_once=at_once)) / count * 1000
    return min(cost, key=lambda at_once: cost[at_once]), cost


def after_removals(contender: Contender, *managers: SessionManager, engine: DockerEngine) -> Contender:
    """Return a contender before whose sample the managers have removed what they used, and their pools are full."""

    async def once() -> float:
        for manager in managers:
            await wait_removed(manager, engine)
        return await contender()

    return once


async def wait_removed(manager: SessionManager, engine: DockerEngine) -> None:
    """Wait until a manager has no containers but those that wait in its pool.

    Raises:
        TimeoutError: It has others after a minute.
    """
    async with asyncio.timeout(_GONE_TIMEOUT_S):
        await manager.pool.wait_filled()
        while len(await engine.list_containers({OWNER_LABEL: manager.owner})) > parked_now(manager):
            await asyncio.sleep(_POLL_S)


def parked_now(manager: SessionManager) -> int:
    """Return how many containers wait in a manager's pool."""
    return sum(kind.parked for kind in manager.pool.stats())
