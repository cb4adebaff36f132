"""Sessions on real containers: cancelled anywhere, closed by many, removed by others, whatever the clocks say."""

import asyncio
import gc
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

import aiodocker
import pytest

from aeolus_sandbox import (
    Buffer,
    CapabilityDenied,
    ConfigurationError,
    EndOfInput,
    Grants,
    LimitName,
    Limits,
    QuotaExceeded,
    SessionBroken,
    SessionBusy,
    SessionClosed,
    SessionManager,
    TerminalInput,
    TerminalTool,
    Text,
)
from aeolus_sandbox.engine.base import OWNER_LABEL, SESSION_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.sandboxes import launcher, reaper
from tests.integration.running import (
    PATIENCE_S,
    container_of,
    containers_of,
    open_command,
    open_descriptors,
    read_rest,
    read_until,
    result_of,
    run_command,
    wait_until_none,
)

pytestmark = pytest.mark.docker

CANCELLATIONS: Final = 300
AT_ONCE: Final = 12


@pytest.fixture
async def docker_api() -> AsyncIterator[aiodocker.Docker]:
    """Give a client of its own: somebody else at the same engine."""
    async with aiodocker.Docker() as client:
        yield client


# Cancellation.


async def _live(manager: SessionManager, *, tty: bool) -> None:
    """Do with a session all that can be cancelled."""
    command = "echo up; read -r line; echo heard $line; sleep 0.05; exit 3"
    session = await open_command(manager, command, tty=tty)
    await session.next_chunk()
    await session.send_stdin(Text("hello\n"))
    while await session.next_chunk() is not None:
        pass
    result = await session.finalize()
    assert result.exit_code == 3
    await session.aclose()


async def _cancelled_after(seconds: float, manager: SessionManager, *, tty: bool) -> bool:
    """Return whether the cancellation came before the end."""
    try:
        async with asyncio.timeout(seconds):
            await _live(manager, tty=tty)
    except TimeoutError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.timeout(580)
async def test_cancellation_at_random_points_leaves_nothing(engine: DockerEngine) -> None:
    dice = random.Random(20)
    async with SessionManager(max_sessions=10_000) as manager:
        began = time.monotonic()
        await _live(manager, tty=True)
        # Points from the first instant to the end of a life on this machine now, with AT_ONCE of them at a time.
        longest = (time.monotonic() - began) * AT_ONCE / 2
        await engine.info()
        gc.collect()
        files_before, tasks_before = len(open_descriptors()), len(asyncio.all_tasks())
        cancelled = 0
        for _ in range(CANCELLATIONS // AT_ONCE):
            async with asyncio.TaskGroup() as group:
                lives = [
                    group.create_task(
                        _cancelled_after(dice.uniform(0, longest), manager, tty=dice.random() < 0.5)
                    )
                    for _ in range(AT_ONCE)
                ]
            cancelled += sum(life.result() for life in lives)
            # Half of them are left to the manager, as a program does that was cancelled and never closes.
            for session in manager.open_sessions[::2]:
                await session.aclose()
        owner = manager.owner
    assert cancelled > CANCELLATIONS / 4
    assert await containers_of(engine, owner) == []
    assert manager.open_sessions == []
    gc.collect()
    assert len(open_descriptors()) <= files_before, open_descriptors()
    assert len(asyncio.all_tasks()) <= tasks_before, asyncio.all_tasks()


async def test_cancelled_open_leaves_no_container(engine: DockerEngine) -> None:
    async with SessionManager() as manager:
        async with asyncio.TaskGroup() as group:
            opening = [group.create_task(open_command(manager, "sleep 300; :")) for _ in range(6)]
            for number, task in enumerate(opening):
                asyncio.get_running_loop().call_later(0.03 * number, task.cancel)
            for task in opening:
                with suppress(asyncio.CancelledError):
                    await task
        for session in manager.open_sessions:
            await session.aclose()
        await wait_until_none(engine, {OWNER_LABEL: manager.owner}, within_s=PATIENCE_S)


async def test_cancelled_next_chunk_loses_nothing(manager: SessionManager) -> None:
    session = await open_command(
        manager, "for i in $(seq 1 60); do echo line $i; sleep 0.02; done", tty=False
    )
    text = ""
    dice = random.Random(7)
    while True:
        try:
            async with asyncio.timeout(dice.uniform(0, 0.03)):
                chunk = await session.next_chunk()
        except TimeoutError:
            continue
        if chunk is None:
            break
        text += chunk.text
    assert text.splitlines() == [f"line {n}" for n in range(1, 61)]
    await session.aclose()


async def test_cancelled_finalize_can_be_called_again(manager: SessionManager) -> None:
    session = await open_command(manager, "read -r line; exit 6")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await session.finalize()
    await session.send_stdin(Text("go\n"))
    assert (await result_of(session)).exit_code == 6
    assert (await result_of(session)).exit_code == 6
    await session.aclose()
    assert (await session.finalize()).exit_code == 6


async def test_cancelled_aclose_still_removes_the_container(
    engine: DockerEngine, manager: SessionManager
) -> None:
    session = await open_command(manager, "sleep 300; :")
    closing = asyncio.get_running_loop().create_task(session.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await closing
    await wait_until_none(engine, {SESSION_LABEL: session.id}, within_s=PATIENCE_S)


async def test_cancel_ends_the_run_and_says_so(engine: DockerEngine, manager: SessionManager) -> None:
    session = await open_command(manager, "trap '' TERM INT HUP; echo up; while :; do sleep 300; done")
    await read_until(session, "up")
    began = time.monotonic()
    await session.cancel()
    result = await result_of(session)
    assert result.status.reason == "cancelled"
    assert result.status.code == 137
    assert time.monotonic() - began < 8  # the usual grace time of an engine is 10 s
    await session.cancel()
    await session.aclose()
    assert await engine.list_containers({SESSION_LABEL: session.id}) == []


async def test_closing_the_manager_ends_every_session(engine: DockerEngine) -> None:
    manager = SessionManager()
    sessions = [await open_command(manager, "sleep 300; :", tty=tty) for tty in (True, False, True)]
    began = time.monotonic()
    await manager.aclose()
    assert time.monotonic() - began < 20
    assert await containers_of(engine, manager.owner) == []
    assert {(await session.finalize()).status.reason for session in sessions} == {"cancelled"}
    await manager.aclose()
    with pytest.raises(SessionClosed):
        await open_command(manager, "true")


async def test_exception_in_a_session_block_removes_the_container(
    engine: DockerEngine, manager: SessionManager
) -> None:
    with pytest.raises(RuntimeError, match="mine"):
        async with await open_command(manager, "sleep 300; :") as session:
            raise RuntimeError("mine")
    assert await engine.list_containers({SESSION_LABEL: session.id}) == []


# Removing a container that is going away.


async def test_many_closings_at_once_are_one(engine: DockerEngine, manager: SessionManager) -> None:
    session = await open_command(manager, "sleep 300; :")
    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(session.aclose())
        for _ in range(3):
            group.create_task(session.cancel())
    await session.aclose()
    assert await engine.list_containers({SESSION_LABEL: session.id}) == []


async def test_many_removals_of_one_container_at_once_all_succeed(
    engine: DockerEngine, manager: SessionManager
) -> None:
    session = await open_command(manager, "sleep 300; :")
    container = await container_of(engine, session)
    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(engine.remove_container(container.id))
    assert await engine.list_containers({SESSION_LABEL: session.id}) == []
    await session.aclose()


async def test_container_removed_from_outside_is_told_and_closing_succeeds(
    engine: DockerEngine, manager: SessionManager, docker_api: aiodocker.Docker
) -> None:
    session = await open_command(manager, "echo up; sleep 300; :")
    await read_until(session, "up")
    await docker_api.containers.container((await container_of(engine, session)).id).delete(force=True)
    with suppress(SessionBroken):  # when it is gone before it could be asked how it ended
        assert (await result_of(session)).status.reason == "killed"
    assert session.status is not None
    assert session.status.reason in {"killed", "lost"}
    await session.aclose()
    await session.aclose()


async def test_container_killed_from_outside_is_told(
    engine: DockerEngine, manager: SessionManager, docker_api: aiodocker.Docker
) -> None:
    session = await open_command(manager, "echo up; sleep 300; :")
    await read_until(session, "up")
    await docker_api.containers.container((await container_of(engine, session)).id).kill()
    result = await result_of(session)
    assert result.status.reason == "killed"
    assert result.exit_code == 137
    await session.aclose()


async def test_closing_while_the_process_exits_succeeds(
    engine: DockerEngine, manager: SessionManager
) -> None:
    for _ in range(10):
        session = await open_command(manager, "read -r line; exit 0", tty=False)
        await session.send_stdin(EndOfInput())
        await session.aclose()
        assert (await session.finalize()).status.reason in {"exited", "cancelled"}
    assert await containers_of(engine, manager.owner) == []


async def test_paused_container_is_removed(
    engine: DockerEngine, manager: SessionManager, docker_api: aiodocker.Docker
) -> None:
    session = await open_command(manager, "echo up; sleep 300; :")
    await read_until(session, "up")
    await docker_api.containers.container((await container_of(engine, session)).id).pause()
    async with asyncio.timeout(PATIENCE_S):
        await session.aclose()
    assert await engine.list_containers({SESSION_LABEL: session.id}) == []


# What a session refuses.


async def test_denied_capability_has_no_effect_at_all() -> None:
    async with SessionManager(grants=Grants(), docker_host="unix:///nonexistent/engine.sock") as manager:
        with pytest.raises(CapabilityDenied):
            await manager.open(TerminalTool(), TerminalInput(command="true"))


async def test_wrong_input_is_refused_before_any_container(
    engine: DockerEngine, manager: SessionManager
) -> None:
    with pytest.raises(ConfigurationError):
        await open_command(manager, "true", env={"not a name": "x"})
    with pytest.raises(ConfigurationError):
        await open_command(manager, ("echo", "zero\0byte"))
    await wait_until_none(engine, {OWNER_LABEL: manager.owner}, within_s=PATIENCE_S)


async def test_more_sessions_than_allowed_are_refused_and_a_closed_one_makes_room() -> None:
    async with SessionManager(max_sessions=2) as manager:
        first = await open_command(manager, "cat")
        await open_command(manager, "cat")
        with pytest.raises(QuotaExceeded):
            await open_command(manager, "cat")
        await first.aclose()
        outcome = await run_command(manager, "echo room")
        assert outcome.text == "room\r\n"


async def test_second_reader_gets_an_error_and_the_first_goes_on(manager: SessionManager) -> None:
    session = await open_command(manager, "read -r line; echo heard")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(read_until(session, "heard"))
        await asyncio.sleep(0)
        with pytest.raises(SessionBusy):
            await session.next_chunk()
        await session.send_stdin(Text("go\n"))
    assert "heard" in first.result()
    await session.aclose()


async def test_ended_session_takes_no_input_and_a_closed_one_gives_no_chunks(manager: SessionManager) -> None:
    session = await open_command(manager, "exit 0")
    await result_of(session)
    with pytest.raises(SessionClosed):
        await session.send_stdin(Text("too late\n"))
    assert await session.next_chunk() is None
    await session.aclose()
    with pytest.raises(SessionClosed):
        await session.next_chunk()


async def test_buffer_gives_one_chunk_after_the_end(manager: SessionManager) -> None:
    outcome = await run_command(
        manager, "echo a; sleep 0.2; echo b; sleep 0.2; echo c", tty=False, policy=Buffer()
    )
    assert [chunk.text for chunk in outcome.chunks] == ["a\nb\nc\n"]


# Clocks.


@pytest.fixture(params=[timedelta(hours=1), timedelta(hours=-1)], ids=["ahead", "behind"])
def stepping_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Give a function that sets the wall clock of everything that asks for the time of day."""
    step: timedelta = request.param

    class Stepped(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + step

    def jump() -> None:
        monkeypatch.setattr(launcher, "datetime", Stepped)
        monkeypatch.setattr(reaper, "datetime", Stepped)
        real_time = time.time  # noqa: TID251 - nobody may follow it, and this shows it
        monkeypatch.setattr(time, "time", lambda: real_time() + step.total_seconds())

    return jump


async def test_step_of_the_wall_clock_neither_ends_nor_extends_a_run(
    manager: SessionManager, stepping_clock: Callable[[], None]
) -> None:
    patient = await open_command(
        manager, "read -r line; echo heard", timeout_s=60, limits=Limits(idle_time_s=30)
    )
    limited = await open_command(manager, "sleep 300; :", timeout_s=2)
    began = time.monotonic()
    stepping_clock()
    result = await result_of(limited)
    assert time.monotonic() - began < 30
    assert result.status.limit_hit is LimitName.WALL_TIME
    assert 1500 < result.duration_ms < 30_000
    assert patient.status is None
    await patient.send_stdin(Text("go\n"))
    assert "heard" in await read_rest(patient)
    assert (await result_of(patient)).status.ok


async def test_step_of_the_wall_clock_does_not_reap_a_living_session(
    engine: DockerEngine, manager: SessionManager, stepping_clock: Callable[[], None]
) -> None:
    before = await open_command(manager, "sleep 300; :", timeout_s=5)
    stepping_clock()
    after = await open_command(manager, "cat")
    own = {session.id for session in (before, after)}
    await reaper.Reaper(engine).sweep()
    left = {container.labels[SESSION_LABEL] for container in await containers_of(engine, manager.owner)}
    assert left == own
