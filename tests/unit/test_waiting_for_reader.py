"""`Window(wait_for_reader=True)`: the tool waits for a slow reader, who loses nothing, and every end comes all the same."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel

from aeolus_sandbox import (
    ConfigurationError,
    SessionClosed,
    SessionManager,
    StreamingTool,
    StreamingToolHandle,
    ToolContext,
)
from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.streaming.policies import Window
from aeolus_sandbox.streaming.session import StreamingToolSession
from tests.unit.numbered import Count, Numbered, NumberedTool, batch_of, grouped

PATIENCE_S = 30
HELD = 3
WAITS = Window(max_chunks=HELD, wait_for_reader=True)


@pytest.fixture
async def tasks() -> AsyncIterator[BackgroundTasks]:
    opened = BackgroundTasks()
    yield opened
    await opened.aclose(timeout_s=PATIENCE_S)


@pytest.fixture
async def pass_time() -> AsyncIterator[Callable[[float], None]]:
    """Move the event loop's clock on, so that no test has to wait, or to be quick."""
    loop = asyncio.get_running_loop()
    real, passed = loop.time, 0.0

    def pass_s(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    loop.time = lambda: real() + passed  # type: ignore[method-assign]
    yield pass_s
    loop.time = real  # type: ignore[method-assign]


async def _settle() -> None:
    """Let everything run that can run."""
    for _ in range(50):
        await asyncio.sleep(0)


async def _is_held_up(tool: NumberedTool) -> int:
    """Wait until the tool waits, and return how many items it has streamed."""
    streamed = -1
    while streamed != tool.streamed:
        streamed = tool.streamed
        await _settle()
    assert streamed < len(tool.items)
    return streamed


def _singles(count: int) -> NumberedTool:
    return NumberedTool([Numbered(number=number) for number in range(count)])


async def _numbers(session: StreamingToolSession[Numbered, Count]) -> list[int]:
    return [chunk.number async for chunk in session]


async def test_tool_is_never_further_ahead_than_the_window_and_nothing_is_lost(
    tasks: BackgroundTasks,
) -> None:
    tool = _singles(40)
    async with asyncio.timeout(PATIENCE_S), tool.open(WAITS, tasks) as session:
        for number in range(30):
            assert await _is_held_up(tool) == number + HELD + 1  # the last one is in the pump's hands
            chunk = await session.next_chunk()
            assert chunk is not None
            assert (chunk.number, chunk.dropped_bytes) == (number, 0)
        assert await _numbers(session) == list(range(30, 40))
        window = session.context_window()
        assert (window.chunks_dropped, window.bytes_dropped, window.limit_chunks) == (0, 0, HELD)
        assert str(session.status) == "exited"


async def test_batch_comes_when_the_one_before_it_is_nearly_read(tasks: BackgroundTasks) -> None:
    tool = NumberedTool([batch_of(group) for group in grouped([10] * 5)])
    async with asyncio.timeout(PATIENCE_S), tool.open(WAITS, tasks) as session:
        assert await _is_held_up(tool) == 2
        for _ in range(10 - HELD):
            await session.next_chunk()
        assert await _is_held_up(tool) == 2
        await session.next_chunk()
        assert await _is_held_up(tool) == 3
        assert session.context_window().chunks_held == 12
        assert await _numbers(session) == list(range(8, 50))


async def test_waiting_for_bytes_ends_when_the_reader_has_made_room(tasks: BackgroundTasks) -> None:
    """The window would take more chunks than the spool."""
    groups = grouped([1, 4, 1, 20, 4, 1], text=lambda _: "x" * 150)
    items = [batch_of(group) if len(group) > 1 else group[0] for group in groups]
    policy = Window(max_chunks=1000, wait_for_reader=True)
    tool = NumberedTool(items)
    async with asyncio.timeout(PATIENCE_S), tool.open(policy, tasks, output_bytes=1024) as session:
        await _is_held_up(tool)
        assert await _numbers(session) == list(range(31))
        assert str(session.status) == "exited"


async def test_cancelled_next_chunk_loses_nothing_while_the_tool_waits(tasks: BackgroundTasks) -> None:
    chance, found, cancelled = random.Random(3), list[int](), 0
    groups = grouped([chance.randrange(1, 6) for _ in range(100)])
    tool = NumberedTool([batch_of(group) if chance.randrange(2) else group[0] for group in groups])
    async with (
        asyncio.timeout(PATIENCE_S),
        tool.open(WAITS, tasks) as session,
        asyncio.TaskGroup() as group,
    ):
        while True:
            reading = group.create_task(session.next_chunk())
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            if reading.cancelled():
                cancelled += 1
            elif (chunk := reading.result()) is None:
                break
            else:
                assert chunk.dropped_bytes == 0
                found.append(chunk.number)
        assert session.context_window().chunks_dropped == 0
    streamed = [
        chunk.number
        for group, item in zip(groups, tool.items, strict=True)
        for chunk in (group[:1] if isinstance(item, Numbered) else group)
    ]
    assert found == streamed
    assert cancelled > 50


async def test_closing_ends_a_tool_that_waits(tasks: BackgroundTasks) -> None:
    tool = _singles(100)
    async with asyncio.timeout(PATIENCE_S):
        async with tool.open(WAITS, tasks) as session:
            await session.next_chunk()
            await _is_held_up(tool)
        assert tool.stop is not None
        assert (await session.finalize()).streamed < 100
        assert str(session.status) == "cancelled"


async def test_closing_under_a_reader_ends_the_tool_and_tells_the_reader(tasks: BackgroundTasks) -> None:
    tool = _singles(100)
    session = tool.open(WAITS, tasks)

    async def read() -> None:
        with pytest.raises(SessionClosed):
            await _numbers(session)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        await session.next_chunk()
        closing = group.create_task(session.aclose())
        await asyncio.sleep(0)
        group.create_task(read())
        await closing
    assert str(session.status) == "cancelled"


@pytest.mark.parametrize("end", ["cancel", "wall time"])
async def test_end_of_a_tool_that_waits_leaves_what_it_had_streamed_without_a_hole(
    end: str, tasks: BackgroundTasks, pass_time: Callable[[float], None]
) -> None:
    groups = grouped([3, 3, 1, 3], text=lambda number: "x" * (10 if number == 6 else 150))
    tool = NumberedTool([batch_of(groups[0]), batch_of(groups[1]), *groups[2], batch_of(groups[3])])
    tool.ends_at_once = False
    policy = Window(max_chunks=4, wait_for_reader=True)
    async with asyncio.timeout(1e6), tool.open(policy, tasks, output_bytes=1024, wall_time_s=60) as session:
        assert await _is_held_up(tool) == 2
        if end == "cancel":
            await session.cancel()
        else:
            pass_time(61)
        await session.finalize()
        numbers = await _numbers(session)
        assert numbers == list(range(len(numbers)))
        assert 3 <= len(numbers) < 10
        assert session.context_window().chunks_dropped == 0
        assert session.status is not None
        assert session.status.reason == ("cancelled" if end == "cancel" else "timed_out")


async def test_tool_that_is_kept_waiting_is_not_idle_while_its_reader_goes_on(
    tasks: BackgroundTasks, pass_time: Callable[[float], None]
) -> None:
    tool = NumberedTool([batch_of(group) for group in grouped([50, 50, 50])])
    async with asyncio.timeout(1e6), tool.open(WAITS, tasks, idle_time_s=30, wall_time_s=100_000) as session:
        for _ in range(40):
            pass_time(20)
            assert await _is_held_up(tool) == 2
            await session.next_chunk()
        assert session.status is None
        pass_time(31)
        await session.finalize()
        assert str(session.status) == "timed out (idle time limit)"


async def test_result_comes_once_all_is_read(tasks: BackgroundTasks) -> None:
    tool = _singles(20)
    async with asyncio.timeout(PATIENCE_S), tool.open(WAITS, tasks) as session, asyncio.TaskGroup() as group:
        result = group.create_task(session.finalize())
        await _is_held_up(tool)
        assert not result.done()
        assert await _numbers(session) == list(range(20))
        assert (await result).streamed == 20


class _Nothing(BaseModel):
    pass


class _Endless(StreamingTool[_Nothing, Numbered, Count]):
    name: ClassVar[str] = "endless"
    description: ClassVar[str] = "Counts."
    Input = _Nothing
    OutputChunk = Numbered
    Final = Count
    waits = False

    @property
    def can_wait(self) -> bool:
        return self.waits

    async def start(self, tool_input: _Nothing, context: ToolContext) -> StreamingToolHandle[Numbered, Count]:
        async def chunks() -> AsyncIterator[Numbered]:
            for number in itertools.count():
                if handle.cancel.is_cancelled:
                    return
                yield Numbered(number=number)

        async def result() -> Count:
            return Count(streamed=0)

        handle = StreamingToolHandle(chunks=chunks(), finalize=result())
        return handle


async def test_tool_that_cannot_wait_is_refused_before_it_starts(tmp_path: Path) -> None:
    tool = _Endless()
    async with asyncio.timeout(PATIENCE_S), SessionManager(state_path=tmp_path / "state.db") as manager:
        with pytest.raises(ConfigurationError, match="'endless' cannot wait"):
            await manager.open(tool, _Nothing(), policy=WAITS)
        assert manager.open_sessions == []
        tool.waits = True
        async with await manager.open(tool, _Nothing(), policy=WAITS) as session:
            assert [await session.next_chunk() for _ in range(100)]
            assert session.context_window().chunks_dropped == 0
