"""Work that was started runs to its end, whoever asked for it."""

import asyncio
import logging

import pytest

from aeolus_sandbox.background import BackgroundTasks


async def test_work_goes_on_when_its_caller_is_cancelled() -> None:
    tasks, entered, go_on, done = BackgroundTasks(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        entered.set()
        await go_on.wait()
        done.set()

    async with asyncio.TaskGroup() as group:
        caller = group.create_task(tasks.run(work(), name="work"))
        await entered.wait()
        caller.cancel()
    assert caller.cancelled()
    assert len(tasks) == 1
    go_on.set()
    async with asyncio.timeout(5):
        await done.wait()
        await tasks.aclose(timeout_s=1)
    assert len(tasks) == 0


async def test_the_result_or_the_error_reaches_the_caller() -> None:
    tasks = BackgroundTasks()

    async def answer() -> int:
        return 42

    async def fail() -> None:
        msg = "broken"
        raise ValueError(msg)

    assert await tasks.run(answer(), name="answer") == 42
    with pytest.raises(ValueError, match="broken"):
        await tasks.run(fail(), name="fail")


async def test_a_failure_that_nobody_awaits_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks = BackgroundTasks()

    async def fail() -> None:
        msg = "unseen"
        raise ValueError(msg)

    with caplog.at_level(logging.WARNING):
        tasks.start(fail(), name="chore")
        await tasks.aclose(timeout_s=1)
    assert "'chore'" in caplog.text
    assert "unseen" in caplog.text


async def test_closing_waits_then_cancels() -> None:
    tasks, finished, cancelled = BackgroundTasks(), asyncio.Event(), asyncio.Event()

    async def short() -> None:
        await asyncio.sleep(0.01)
        finished.set()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    tasks.start(short(), name="short")
    tasks.start(endless(), name="endless")
    async with asyncio.timeout(5):
        await tasks.aclose(timeout_s=0.2)
    assert finished.is_set()
    assert cancelled.is_set()
    assert len(tasks) == 0


async def test_work_that_starts_work_while_closing_is_waited_for_too() -> None:
    tasks, done = BackgroundTasks(), asyncio.Event()

    async def second() -> None:
        done.set()

    async def first() -> None:
        tasks.start(second(), name="second")

    tasks.start(first(), name="first")
    await tasks.aclose(timeout_s=1)
    assert done.is_set()
