"""The warm pool on real containers: each is good, used once, and gone when its owner is."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator

import pytest

from aeolus_sandbox import (
    CodeInterpreterInput,
    CodeInterpreterTool,
    ImageNotFound,
    PoolSettings,
    PoolStats,
    SessionManager,
    TerminalInput,
    TerminalTool,
)
from aeolus_sandbox.engine.base import OWNER_LABEL, ContainerId
from aeolus_sandbox.engine.docker import DockerEngine
from tests.integration.conftest import StartOwner
from tests.integration.running import (
    PATIENCE_S,
    containers_of,
    open_command,
    read_until,
    run_command,
    wait_until_none,
)

pytestmark = pytest.mark.docker

TOOL = TerminalTool()
ON_PIPES = TerminalInput(command="true", tty=False)
ON_TERMINAL = TerminalInput(command="true", tty=True)


@pytest.fixture
async def pooled(engine: DockerEngine) -> AsyncIterator[SessionManager]:
    """Give a manager with three shells that wait on pipes, and three on a terminal."""
    async with SessionManager(pool=PoolSettings(check_timeout_s=5.0)) as manager:
        for asked in (ON_PIPES, ON_TERMINAL):
            await manager.pool.keep(TOOL, asked, minimum=3)
        await manager.pool.wait_filled(timeout_s=PATIENCE_S)
        yield manager
    assert await containers_of(engine, manager.owner) == []


def _stats(manager: SessionManager, *, tty: bool = False) -> PoolStats:
    [found] = [stats for stats in manager.pool.stats() if stats.tty == tty]
    return found


def _waiting(manager: SessionManager, *, tty: bool = False) -> list[ContainerId]:
    """Return the ids of those that wait, the oldest first."""
    shelves = manager._host.pool._shelves.items()
    return [each.container.id for kind, shelf in shelves if kind.profile.tty == tty for each in shelf.parked]


async def _docker(*arguments: str) -> None:
    """Do something to a container behind our back."""
    await asyncio.to_thread(subprocess.run, ["docker", *arguments], check=True, capture_output=True)


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
async def test_each_gets_a_good_one_whatever_happened_to_those_that_wait(tty: bool) -> None:
    async with SessionManager(pool=PoolSettings(check_timeout_s=0.5)) as manager:
        await manager.pool.keep(TOOL, TerminalInput(command="true", tty=tty), minimum=3)
        await manager.pool.wait_filled(timeout_s=PATIENCE_S)
        removed, killed, paused = _waiting(manager, tty=tty)
        async with asyncio.TaskGroup() as group:
            group.create_task(_docker("rm", "-f", removed))
            group.create_task(_docker("kill", killed))
            group.create_task(_docker("pause", paused))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(open_command(manager, "echo well; cat", tty=tty)) for _ in range(3)]
        for task in tasks:
            assert "well" in await read_until(task.result(), "well")
        used = [
            container.id for context in manager._host._unreleased for container in context._lease._containers
        ]
        assert len(used) == len(set(used)) == 3  # no two got the same
        assert not set(used) & {removed, killed, paused}
        await manager.pool.wait_filled(timeout_s=PATIENCE_S)
        assert not {removed, killed, paused} & set(_waiting(manager, tty=tty))
        assert _stats(manager, tty=tty).discarded >= 3


async def test_a_paused_one_can_be_removed(engine: DockerEngine) -> None:
    async with SessionManager(pool=PoolSettings(check_timeout_s=0.3, health_check_s=0.2)) as manager:
        await manager.pool.keep(TOOL, ON_PIPES, minimum=1)
        await manager.pool.wait_filled(timeout_s=PATIENCE_S)
        [paused] = _waiting(manager)
        await _docker("pause", paused)
        async with asyncio.timeout(PATIENCE_S):
            while paused in {each.id for each in await containers_of(engine, manager.owner)}:  # noqa: ASYNC110 - the engine tells only who asks
                await asyncio.sleep(0.1)
        assert _stats(manager).discarded >= 1


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
async def test_nothing_of_the_former_user_is_visible(pooled: SessionManager, tty: bool) -> None:
    dirty = "touch /tmp/left /workspace/left; export X=1; alias ls=false; sleep 999 & echo done"
    look = (
        'ls -A /tmp /workspace; echo "X=$X"; grep -c sleep /proc/[0-9]*/comm | grep -v :0 || echo "no sleep"'
    )
    for _ in range(3):
        async with await open_command(pooled, dirty, tty=tty) as session:
            await read_until(session, "done")
        found = (await run_command(pooled, look, tty=tty)).text
        assert "left" not in found
        assert "X=1" not in found
        assert found.count("sleep") <= 1 + ("no sleep" in found)  # the watchdog's own
    assert _stats(pooled, tty=tty).hits >= 4


async def test_one_that_waited_behaves_like_one_that_did_not(pooled: SessionManager) -> None:
    asked = 'stty size; pwd; id -u; echo "$TERM $HOME $A"; cat given; tty -s && echo terminal; exit 7'
    waited = await run_command(
        pooled, asked, tty=True, cols=99, rows=33, env={"A": "a b"}, files={"given": "it\n"}
    )
    assert _stats(pooled, tty=True).hits == 1
    async with SessionManager() as other:
        cold = await run_command(
            other, asked, tty=True, cols=99, rows=33, env={"A": "a b"}, files={"given": "it\n"}
        )
    assert waited.text == cold.text
    assert "33 99" in waited.text
    assert waited.result.exit_code == cold.result.exit_code == 7


async def test_limits_hold_in_one_that_waited(pooled: SessionManager) -> None:
    outcome = await run_command(pooled, "ulimit -n; cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max")
    assert "1024" in outcome.text
    assert "128" in outcome.text


@pytest.mark.slow
async def test_a_burst_larger_than_the_pool_has_no_failure(pooled: SessionManager) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_command(pooled, f"echo {number}", tty=False)) for number in range(12)]
    assert [task.result().text for task in tasks] == [f"{number}\n" for number in range(12)]
    stats = _stats(pooled)
    assert stats.hits >= 3
    assert stats.hits + stats.misses == 12
    assert stats.failures == 0


async def test_kernels_wait_booted_and_forget_nothing_between_calls(engine: DockerEngine) -> None:
    tool = CodeInterpreterTool()
    async with SessionManager(pool=PoolSettings(check_timeout_s=10.0)) as manager:
        await manager.pool.keep(tool, CodeInterpreterInput(code=""), minimum=1)
        await manager.pool.wait_filled(timeout_s=PATIENCE_S)
        assert await _evaluate(manager, tool, "x = 6; x * 7") == "42"
        await manager.pool.wait_filled(timeout_s=PATIENCE_S)
        assert await _evaluate(manager, tool, "'x' in globals()") == "False"
        await manager.pool.wait_filled(timeout_s=PATIENCE_S)
        assert await _evaluate(manager, tool, "y = 1; y", session_id="kept") == "1"
        assert await _evaluate(manager, tool, "y + 1", session_id="kept") == "2"
        [stats] = manager.pool.stats()
        assert (stats.hits, stats.misses, stats.discarded) == (3, 0, 0)
    assert await containers_of(engine, manager.owner) == []


async def _evaluate(
    manager: SessionManager, tool: CodeInterpreterTool, code: str, *, session_id: str | None = None
) -> str:
    asked = CodeInterpreterInput(code=code, session_id=session_id)
    async with asyncio.timeout(PATIENCE_S), await manager.open(tool, asked) as session:
        texts = [chunk.content async for chunk in session if chunk.stream == "result"]
        result = await session.finalize()
    assert result.success, result.error
    return "".join(texts)


async def test_a_missing_image_is_reported_and_rested_for() -> None:
    tool = TerminalTool(image="localhost/no-such-image:1")
    async with SessionManager(pool=PoolSettings(backoff_s=0.2)) as manager:
        await manager.pool.keep(tool, ON_PIPES, minimum=2)
        with pytest.raises(ImageNotFound, match="no-such-image"):
            await manager.pool.wait_filled(timeout_s=PATIENCE_S)
        with pytest.raises(ImageNotFound):
            await manager.open(tool, ON_PIPES)
        stats = _stats(manager)
        assert stats.last_error is not None
        assert "no-such-image" in stats.last_error
        assert stats.failures >= 1


@pytest.mark.parametrize("delay_s", [0.1, 0.4, 1.0])
async def test_closing_while_it_is_filled_leaves_nothing(engine: DockerEngine, delay_s: float) -> None:
    async with SessionManager() as manager:
        await manager.pool.keep(TOOL, ON_PIPES, minimum=6)
        await asyncio.sleep(delay_s)
    assert await containers_of(engine, manager.owner) == []


async def test_a_killed_host_process_leaves_none_that_waits(
    engine: DockerEngine, start_owner: StartOwner
) -> None:
    owner = await start_owner("tty", "pool")
    async with asyncio.timeout(PATIENCE_S):
        assert await owner.read_line() == "filled\n"
    assert len(await containers_of(engine, owner.owner)) >= 4
    owner.process.send_signal(signal.SIGKILL)
    await owner.wait_ended()
    await wait_until_none(engine, {OWNER_LABEL: owner.owner}, within_s=PATIENCE_S)
