"""What a session has taken goes when it ends, whatever happened in between."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.engine.base import EngineContainer
from aeolus_sandbox.errors import EngineError, SessionClosed
from aeolus_sandbox.sandboxes.lease import Lease
from aeolus_sandbox.testing.engine_subject import Subject
from aeolus_sandbox.testing.local_engine import LocalEngine


@pytest.fixture
async def local() -> AsyncIterator[LocalEngine]:
    async with LocalEngine() as engine:
        yield engine


async def _container(engine: LocalEngine) -> EngineContainer:
    return await engine.launch(Subject(engine, image="local").spec("exec sleep 60"))


async def test_closing_removes_everything_and_can_be_repeated(local: LocalEngine) -> None:
    lease = Lease("s", BackgroundTasks())
    for _ in range(3):
        await lease.take(await _container(local))
    await asyncio.wait_for(lease.aclose(), 10)
    await lease.aclose()
    assert lease.is_empty
    assert await local.list_containers({}) == []


async def test_one_that_cannot_be_removed_is_tried_again(local: LocalEngine) -> None:
    lease = Lease("s", BackgroundTasks())
    for _ in range(3):
        await lease.take(await _container(local))
    local.fail_next("remove_container", EngineError("not now"))
    with pytest.raises(EngineError, match="not now"):
        await lease.aclose()
    assert len(await local.list_containers({})) == 1
    await lease.aclose()
    assert lease.is_empty
    assert await local.list_containers({}) == []


async def test_what_comes_after_the_end_is_removed_at_once(local: LocalEngine) -> None:
    lease = Lease("s", BackgroundTasks())
    await lease.aclose()
    with pytest.raises(SessionClosed, match="closed while it started"):
        await lease.take(await _container(local))
    assert await local.list_containers({}) == []


async def test_a_discard_runs_to_its_end_although_the_caller_is_cancelled(local: LocalEngine) -> None:
    tasks = BackgroundTasks()
    lease = Lease("s", tasks)
    container = await _container(local)
    await lease.take(container)
    async with asyncio.TaskGroup() as group:
        discarding = group.create_task(lease.discard(container))
        await asyncio.sleep(0)
        discarding.cancel()
    await tasks.aclose(timeout_s=10)
    assert lease.is_empty
    assert await local.list_containers({}) == []


async def test_many_may_close_at_once(local: LocalEngine) -> None:
    lease = Lease("s", BackgroundTasks())
    await lease.take(await _container(local))
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(lease.aclose())
    assert lease.is_empty
