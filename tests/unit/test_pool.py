"""The warm pool: who gets a container that waits, who starts a cold one, and that nobody gets a bad one."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from aeolus_sandbox.capabilities import Grants
from aeolus_sandbox.errors import (
    CapabilityDenied,
    ConfigurationError,
    EngineTimeout,
    EngineUnavailable,
    ImageNotFound,
    SessionClosed,
)
from aeolus_sandbox.limits import MIB, Limits
from aeolus_sandbox.manager import SessionManager
from aeolus_sandbox.sandboxes.pool_settings import PoolSettings
from aeolus_sandbox.streaming.policies import Manual
from aeolus_sandbox.streaming.tool import IsolationMode
from aeolus_sandbox.testing.local_engine import LocalEngine
from aeolus_sandbox.tools.terminal import TerminalInput, TerminalTool
from tests.unit.warm_tools import (
    BRISK,
    ON_PIPES,
    ON_TERMINAL,
    TOOL,
    EchoInput,
    EchoTool,
    echo,
    only_stats,
    run,
    until,
    waiting,
)


@pytest.fixture
async def local() -> AsyncIterator[LocalEngine]:
    async with LocalEngine() as engine:
        yield engine


@pytest.fixture
async def manager(local: LocalEngine) -> AsyncIterator[SessionManager]:
    async with asyncio.timeout(100), SessionManager(engine=local, pool=BRISK) as opened:
        yield opened
    assert await local.list_containers({}) == []


# Who gets one.


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
async def test_a_session_takes_one_that_waits(manager: SessionManager, tty: bool) -> None:
    await manager.pool.keep(TOOL, ON_TERMINAL if tty else ON_PIPES, minimum=2)
    await manager.pool.wait_filled()
    assert only_stats(manager).hit_rate is None
    assert (await run(manager, "echo hello", tty=tty)).split() == ["hello"]
    stats = only_stats(manager)
    assert (stats.tool, stats.image, stats.tty, stats.hits, stats.misses, stats.hit_rate) == (
        "terminal", "local", tty, 1, 0, 1.0
    )  # fmt: skip


async def test_another_takes_its_place_and_a_used_one_does_not_come_back(
    manager: SessionManager, local: LocalEngine
) -> None:
    await manager.pool.keep(TOOL, ON_PIPES, minimum=1)
    await manager.pool.wait_filled()
    [first] = waiting(manager)
    await run(manager, "touch left")
    await manager.pool.wait_filled()
    assert await run(manager, "ls") == ""
    await until(lambda: not local.knows(first.id))
    assert only_stats(manager).hits == 2


async def test_what_the_program_said_first_reaches_its_user(manager: SessionManager) -> None:
    assert await echo(manager, "one") == "cold is ready\ngot one\n"
    await manager.pool.keep(EchoTool(), EchoInput(line=""), minimum=1)
    await manager.pool.wait_filled()
    assert await echo(manager, "two") == "warm is ready\ngot two\n"
    assert only_stats(manager).argv is not None


async def test_a_burst_larger_than_the_pool_starts_cold_ones(
    manager: SessionManager, local: LocalEngine
) -> None:
    await manager.pool.keep(TOOL, ON_PIPES, minimum=3)
    await manager.pool.wait_filled()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(manager, f"echo {number}")) for number in range(10)]
    assert [task.result() for task in tasks] == [f"{number}\n" for number in range(10)]
    stats = only_stats(manager)
    assert stats.hits >= 3
    assert stats.hits + stats.misses == 10


@pytest.mark.parametrize("other", ["terminal", "limits", "image"])
async def test_one_of_another_kind_is_not_taken(manager: SessionManager, other: str) -> None:
    await manager.pool.keep(TOOL, ON_PIPES, minimum=1)
    await manager.pool.wait_filled()
    tool = TerminalTool(image="another" if other == "image" else "local")
    limits = Limits(memory_bytes=512 * MIB) if other == "limits" else None
    asked = TerminalInput(command="true", tty=other == "terminal")
    async with await manager.open(tool, asked, limits=limits) as session:
        await session.finalize()
    stats = only_stats(manager)
    assert (stats.hits, stats.misses, stats.parked) == (0, 0, 1)


async def test_limits_of_the_session_alone_make_no_other_kind(manager: SessionManager) -> None:
    await manager.pool.keep(TOOL, ON_PIPES, minimum=1, limits=Limits(wall_time_s=5, output_bytes=2048))
    await manager.pool.wait_filled()
    async with await manager.open(TOOL, ON_PIPES, limits=Limits(wall_time_s=20, idle_time_s=9)):
        assert only_stats(manager).hits == 1


async def test_a_run_with_a_key_starts_a_container_that_bears_it(
    manager: SessionManager, local: LocalEngine
) -> None:
    await manager.pool.keep(TOOL, ON_PIPES, minimum=1)
    await manager.pool.wait_filled()
    async with await manager.open(TOOL, ON_PIPES, idempotency_key="k"):
        [found] = await local.list_containers({"aeolus.idempotency_key": "k"})
        assert found.labels["aeolus.session"] != "pool"
    assert only_stats(manager).hits == 0


async def test_a_session_that_may_outlast_the_container_starts_its_own(manager: SessionManager) -> None:
    await manager.pool.keep(TOOL, ON_PIPES, minimum=1)
    await manager.pool.wait_filled()
    async with await manager.open(TOOL, ON_PIPES, policy=Manual()):
        assert only_stats(manager).hits == 0


# Nobody gets a bad one.


async def test_one_that_ends_is_noticed_and_replaced(manager: SessionManager, local: LocalEngine) -> None:
    await manager.pool.keep(TOOL, ON_PIPES, minimum=2)
    await manager.pool.wait_filled()
    [first, _] = waiting(manager)
    await first.kill()
    await until(lambda: only_stats(manager).discarded == 1)
    await manager.pool.wait_filled()
    assert not local.knows(first.id)


async def test_one_that_does_not_answer_is_passed_over(local: LocalEngine) -> None:
    settings = PoolSettings(check_timeout_s=0.5)
    async with asyncio.timeout(60), SessionManager(engine=local, pool=settings) as manager:
        await manager.pool.keep(TOOL, ON_PIPES, minimum=2)
        await manager.pool.wait_filled()
        [first, second] = waiting(manager)
        await first.signal("SIGSTOP")
        assert await run(manager, "echo well") == "well\n"
        assert only_stats(manager).discarded >= 1
        await until(lambda: not local.knows(first.id))
        assert second.id != first.id


async def test_where_none_answers_a_cold_one_is_started(local: LocalEngine) -> None:
    settings = PoolSettings(check_timeout_s=0.05)
    async with asyncio.timeout(60), SessionManager(engine=local, pool=settings) as manager:
        await manager.pool.keep(TOOL, ON_PIPES, minimum=6)
        await manager.pool.wait_filled()
        for container in waiting(manager):
            await container.signal("SIGSTOP")
        assert await run(manager, "echo well") == "well\n"
        stats = only_stats(manager)
        assert (stats.hits, stats.misses) == (0, 1)
        assert 1 <= stats.discarded <= 4  # it does not try them all: a start is faster


async def test_the_health_check_finds_one_that_does_not_answer(local: LocalEngine) -> None:
    settings = PoolSettings(check_timeout_s=0.5, health_check_s=0.1)
    async with asyncio.timeout(60), SessionManager(engine=local, pool=settings) as manager:
        await manager.pool.keep(TOOL, ON_PIPES, minimum=2)
        await manager.pool.wait_filled()
        [first, _] = waiting(manager)
        await first.signal("SIGSTOP")
        await until(lambda: not local.knows(first.id))
        await manager.pool.wait_filled()


async def test_the_health_check_does_not_disturb_who_gets_one(local: LocalEngine) -> None:
    settings = BRISK.model_copy(update={"health_check_s": 0.001})
    async with asyncio.timeout(100), SessionManager(engine=local, pool=settings) as manager:
        await manager.pool.keep(TOOL, ON_PIPES, minimum=3)
        for number in range(30):
            assert await run(manager, f"echo {number}") == f"{number}\n"
        stats = only_stats(manager)
        assert stats.discarded == 0
        assert stats.hits + stats.misses == 30


async def test_one_that_speaks_unasked_is_not_handed_out(manager: SessionManager) -> None:
    chatty = EchoTool(warm_loop="echo ready; read -r go; echo and more; exec cat")
    await manager.pool.keep(chatty, EchoInput(line=""), minimum=1)
    await manager.pool.wait_filled()
    assert await echo(manager, "x", chatty) == "cold is ready\ngot x\n"
    stats = only_stats(manager)
    assert (stats.hits, stats.misses) == (0, 1)
    assert stats.discarded >= 1


async def test_no_two_get_the_same_whoever_is_cancelled(manager: SessionManager, local: LocalEngine) -> None:
    chance, within_s, opened = random.Random(7), 0.02, 0  # follows the machine: some opens end, some do not
    await manager.pool.keep(TOOL, ON_PIPES, minimum=4)
    seen: set[str] = set()

    async def use() -> None:
        nonlocal within_s, opened
        try:
            async with asyncio.timeout(chance.random() * within_s):
                session = await manager.open(TOOL, ON_PIPES)
        except TimeoutError:
            within_s *= 1.1
            return
        within_s /= 1.2
        opened += 1
        containers = manager._host._unreleased
        owned = {
            c.id
            for context in containers
            for c in context._lease._containers
            if context.session_id == session.id
        }
        assert len(owned) == 1
        assert not owned & seen
        seen.update(owned)
        await session.aclose()

    for _ in range(25):
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(use())
    assert 0 < opened < 75
    await manager.pool.wait_filled()
    await until(lambda: len(local._containers) == only_stats(manager).parked + only_stats(manager).starting)


# Filling.


async def test_callers_come_first(manager: SessionManager) -> None:
    async with manager._host._cold_starts.turn():
        await manager.pool.keep(TOOL, ON_PIPES, minimum=2)
        await asyncio.sleep(0.3)
        assert only_stats(manager).starting == only_stats(manager).parked == 0
        manager._host._cold_starts._busy_since -= 60  # callers all along: the pool must not starve
        async with manager._host._cold_starts.turn():
            pass
        await until(lambda: only_stats(manager).parked == 1)
    await manager.pool.wait_filled()


async def test_failures_are_reported_and_tried_again(manager: SessionManager, local: LocalEngine) -> None:
    local.fail_next("launch", EngineUnavailable("no engine"), times=2)
    await manager.pool.keep(TOOL, ON_PIPES, minimum=1)
    await until(lambda: only_stats(manager).last_error == "no engine")
    await manager.pool.wait_filled()
    stats = only_stats(manager)
    assert (stats.failures, stats.last_error, stats.parked) == (2, None, 1)


async def test_who_waits_hears_what_fails_again_and_again(
    manager: SessionManager, local: LocalEngine
) -> None:
    local.fail_next("launch", EngineUnavailable("no engine"), times=1000)
    await manager.pool.keep(TOOL, ON_PIPES, minimum=1)
    with pytest.raises(EngineUnavailable, match="no engine"):
        await manager.pool.wait_filled()
    local._faults.clear()
    await manager.pool.wait_filled()


async def test_a_missing_image_is_reported_and_sessions_get_their_own_error() -> None:
    async with (
        LocalEngine(images=["other:latest"]) as local,
        SessionManager(engine=local, pool=BRISK) as manager,
    ):
        await manager.pool.keep(TOOL, ON_PIPES, minimum=2)
        with pytest.raises(ImageNotFound):
            await manager.pool.wait_filled()
        with pytest.raises(ImageNotFound):
            await manager.open(TOOL, ON_PIPES)
        launches, before = local.launches, only_stats(manager).failures
        await asyncio.sleep(0.5)
        assert only_stats(manager).failures - before <= local.launches - launches < 25  # it rests in between
        assert only_stats(manager).last_error is not None


async def test_an_image_without_a_shell_is_reported(manager: SessionManager) -> None:
    silent = EchoTool(warm_loop="exit 3")
    await manager.pool.keep(silent, EchoInput(line=""), minimum=1)
    with pytest.raises(Exception, match="does not wait"):
        await manager.pool.wait_filled()


async def test_who_waits_does_not_wait_for_ever(manager: SessionManager, local: LocalEngine) -> None:
    slow = EchoTool(warm_loop="sleep 60; echo ready")
    await manager.pool.keep(slow, EchoInput(line=""), minimum=1)
    with pytest.raises(EngineTimeout, match="0 of 1"):
        await manager.pool.wait_filled(timeout_s=0.2)
    await manager.aclose()  # does not wait for it either
    assert await local.list_containers({}) == []


async def test_old_ones_are_replaced(local: LocalEngine) -> None:
    settings = BRISK.model_copy(update={"lifetime_s": 0.3})
    async with asyncio.timeout(60), SessionManager(engine=local, pool=settings) as manager:
        await manager.pool.keep(TOOL, ON_PIPES, minimum=1)
        await manager.pool.wait_filled()
        [first] = waiting(manager)
        await until(lambda: not local.knows(first.id))
        stats = only_stats(manager)
        assert stats.parked >= 1  # the new one was there first
        assert stats.expired >= 1
        assert stats.discarded == 0


async def test_demand_makes_it_grow_as_far_as_it_may(manager: SessionManager) -> None:
    await manager.pool.keep(TOOL, ON_PIPES, minimum=1, maximum=3)
    await manager.pool.wait_filled()
    assert only_stats(manager).target == 1
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(run(manager, "true"))
    assert only_stats(manager).target == 3
    await until(lambda: only_stats(manager).parked == 3)


# Ending.


async def test_a_minimum_of_zero_ends_it(manager: SessionManager, local: LocalEngine) -> None:
    await manager.pool.keep(TOOL, ON_PIPES, minimum=3)
    await manager.pool.wait_filled()
    await manager.pool.keep(TOOL, ON_PIPES, minimum=0)
    assert manager.pool.stats() == ()
    await until(lambda: not local._containers)


@pytest.mark.parametrize("delay_s", [0.0, 0.051, 0.06, 0.08, 0.15])
async def test_closing_while_it_is_filled_leaves_nothing(local: LocalEngine, delay_s: float) -> None:
    async with asyncio.timeout(60), SessionManager(engine=local, pool=BRISK) as manager:
        await manager.pool.keep(TOOL, ON_PIPES, minimum=8)
        await manager.pool.keep(EchoTool(), EchoInput(line=""), minimum=8)
        await asyncio.sleep(delay_s)
    assert await local.list_containers({}) == []
    assert await local.living_processes() == []
    with pytest.raises(SessionClosed):
        await manager.pool.keep(TOOL, ON_PIPES, minimum=1)


async def test_what_waits_for_a_pool_ends_when_it_closes(local: LocalEngine) -> None:
    manager = SessionManager(engine=local, pool=BRISK)
    local.fail_next("launch", EngineUnavailable("no engine"), times=1)
    await manager.pool.keep(EchoTool(warm_loop="sleep 1; exit"), EchoInput(line=""), minimum=1)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waits = group.create_task(_closed_while_waiting(manager))
        await asyncio.sleep(0.01)
        await manager.aclose()
    assert waits.result()


async def _closed_while_waiting(manager: SessionManager) -> bool:
    try:
        await manager.pool.wait_filled()
    except SessionClosed:
        return True
    return False


# What cannot be kept.


async def test_what_cannot_wait_is_refused(manager: SessionManager) -> None:
    class Unknown(EchoTool):
        def profile(self, tool_input: EchoInput) -> None:  # type: ignore[override]
            return None

    class Inside(EchoTool):
        isolation = IsolationMode.IN_PROCESS

    class Impatient(EchoTool):
        def profile(self, tool_input: EchoInput):  # type: ignore[no-untyped-def]
            return super().profile(tool_input).model_copy(update={"warm": None})

    for tool in (Unknown(), Inside(), Impatient()):
        with pytest.raises(ConfigurationError, match="wait"):
            await manager.pool.keep(tool, EchoInput(line=""), minimum=1)
    for minimum, maximum in ((-1, None), (3, 2)):
        with pytest.raises(ConfigurationError, match="does not exist"):
            await manager.pool.keep(TOOL, ON_PIPES, minimum=minimum, maximum=maximum)
    with pytest.raises(ConfigurationError, match="wider"):
        await manager.pool.keep(TOOL, ON_PIPES, minimum=1, limits=Limits(wall_time_s=9999))
    assert manager.pool.stats() == ()


async def test_what_is_not_granted_is_refused(local: LocalEngine) -> None:
    async with SessionManager(engine=local, grants=Grants()) as manager:
        with pytest.raises(CapabilityDenied):
            await manager.pool.keep(TOOL, ON_PIPES, minimum=1)
    assert local.launches == 0
