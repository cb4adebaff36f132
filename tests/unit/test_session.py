"""A session keeps its limits, ends in every way it can, and says how."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import EngineError, NotInteractive, SessionBroken, SessionBusy, SessionClosed
from aeolus_sandbox.exit_status import Stop
from aeolus_sandbox.limits import LimitName, Limits
from aeolus_sandbox.streaming import session as session_module
from aeolus_sandbox.streaming.chunks import JsonCodec, OutputChunk
from aeolus_sandbox.streaming.policies import Buffer, Policy, Window
from aeolus_sandbox.streaming.session import StreamingToolSession
from aeolus_sandbox.streaming.stdin import StdinChannel, Text
from aeolus_sandbox.streaming.tool import CancelToken, StreamingToolHandle
from tests.unit.policy_contexts import session_services


class _Line(OutputChunk):
    text: str


class _Sum(BaseModel):
    lines: int


class _Tool:
    """One running tool under the test's control: it streams what is put, and ends when it is told to."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self.tasks = tasks
        self.lines: list[str | Exception | None] = []
        self.changed = asyncio.Event()
        self.cancel = CancelToken(self._ended)
        self.heeds_cancel = True
        self.released = 0
        self.count = 0

    def say(self, *lines: str | Exception | None) -> None:
        """Stream these lines; None is the end, an error is the tool's failure."""
        self.lines += lines
        self.changed.set()

    async def chunks(self) -> AsyncIterator[_Line]:
        while True:
            while self.lines:
                line = self.lines.pop(0)
                if line is None:
                    return
                if isinstance(line, Exception):
                    raise line
                self.count += 1
                yield _Line(text=line)
            self.changed.clear()
            await self.changed.wait()

    async def result(self) -> _Sum:
        return _Sum(lines=self.count)

    async def release(self) -> None:
        self.released += 1

    async def _ended(self, stop: Stop) -> None:
        if self.heeds_cancel:
            self.say(None)

    def open(
        self,
        policy: Policy | None = None,
        *,
        stdin: StdinChannel | None = None,
        finalize: Callable[[], Awaitable[Any]] | None = None,
        **limits: Any,
    ) -> StreamingToolSession[_Line, Any]:
        handle = StreamingToolHandle(
            chunks=self.chunks(), finalize=(finalize or self.result)(), stdin=stdin, cancel=self.cancel
        )
        return StreamingToolSession(
            handle,
            session_id="s",
            policy=policy or Window(),
            codec=JsonCodec(_Line),
            limits=Limits.model_validate(limits),
            tool_name="t",
            services=session_services(self.tasks),
            release=self.release,
        )


@pytest.fixture
async def tool() -> AsyncIterator[_Tool]:
    tasks = BackgroundTasks()
    yield _Tool(tasks)
    async with asyncio.timeout(10):
        await tasks.aclose(timeout_s=5)


async def _texts(session: StreamingToolSession[_Line, Any]) -> list[str]:
    return [chunk.text async for chunk in session]


async def test_everything_is_read_and_the_result_is_given(tool: _Tool) -> None:
    async with asyncio.timeout(5), tool.open() as session:
        assert session.status is None
        tool.say("a", "b", None)
        assert await _texts(session) == ["a", "b"]
        assert await session.next_chunk() is None
        assert await session.finalize() == _Sum(lines=2)
        assert str(session.status) == "exited"
    assert tool.released == 1
    assert await session.finalize() == _Sum(lines=2)


async def test_a_second_reader_is_told_and_the_first_goes_on(tool: _Tool) -> None:
    async with asyncio.timeout(5), tool.open() as session, asyncio.TaskGroup() as group:
        reading = group.create_task(session.next_chunk())
        await asyncio.sleep(0)
        with pytest.raises(SessionBusy, match="another task"):
            await session.next_chunk()
        tool.say("a")
        chunk = await reading
        assert chunk is not None
        assert chunk.text == "a"
        tool.say("b", None)
        assert await _texts(session) == ["b"]


async def test_a_cancelled_reader_leaves_the_session_free(tool: _Tool) -> None:
    async with asyncio.timeout(5), tool.open() as session:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await session.next_chunk()
        tool.say("a", None)
        assert await _texts(session) == ["a"]


async def test_the_pump_reads_although_nobody_else_does(tool: _Tool) -> None:
    async with asyncio.timeout(5), tool.open(output_bytes=1024) as session:
        tool.say(*(str(number) for number in range(10_000)), None)
        assert await session.finalize() == _Sum(lines=10_000)
        assert session.context_window().chunks_dropped > 9_000
        last = [chunk async for chunk in session]
        assert last[-1].text == "9999"
        assert last[0].dropped_bytes > 0


async def test_a_full_spool_ends_a_run_that_must_lose_nothing(tool: _Tool) -> None:
    async with asyncio.timeout(5), tool.open(Buffer(), output_bytes=1024) as session:
        tool.say(*(str(number) for number in range(10_000)))
        await session.finalize()
        assert session.status is not None
        assert (session.status.reason, session.status.limit_hit) == ("output_limit", LimitName.OUTPUT_BYTES)
        texts = await _texts(session)
        assert texts == [str(number) for number in range(len(texts))]
        assert 0 < len(texts) < 1000


async def test_a_chunk_larger_than_the_spool_ends_the_run_under_every_policy(tool: _Tool) -> None:
    async with asyncio.timeout(5), tool.open(output_bytes=1024) as session:
        tool.say("x" * 2000, "after")
        await session.finalize()
        assert session.status is not None
        assert session.status.limit_hit == LimitName.OUTPUT_BYTES


async def test_the_wall_time_ends_a_run_and_follows_no_wall_clock(
    tool: _Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = time.monotonic()
    async with asyncio.timeout(5), tool.open(wall_time_s=0.3) as session:
        monkeypatch.setattr(time, "time", lambda: 1e9)  # the clock was set, far away
        await asyncio.sleep(0.1)
        assert not tool.cancel.is_cancelled
        await session.finalize()
        assert session.status is not None
        assert (session.status.reason, session.status.limit_hit) == ("timed_out", LimitName.WALL_TIME)
    assert 0.3 <= time.monotonic() - started < 2


async def test_silence_ends_a_run_with_an_idle_limit_and_output_puts_it_off(tool: _Tool) -> None:
    started = time.monotonic()
    async with asyncio.timeout(5), tool.open(idle_time_s=0.2) as session:
        for _ in range(4):
            await asyncio.sleep(0.1)
            tool.say("x")
        await session.finalize()
        assert session.status is not None
        assert (session.status.reason, session.status.limit_hit) == ("timed_out", LimitName.IDLE_TIME)
    assert time.monotonic() - started >= 0.6


async def test_cancel_ends_the_tool_once_and_the_rest_of_the_output_is_read(tool: _Tool) -> None:
    async with asyncio.timeout(5), tool.open() as session:
        tool.say("a")
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(session.cancel())
        assert await _texts(session) == ["a"]
        assert str(session.status) == "cancelled"
        assert tool.cancel.stop == Stop(reason="cancelled")
        assert await session.finalize() == _Sum(lines=1)
    assert tool.released == 1


async def test_what_comes_after_the_end_changes_nothing(tool: _Tool) -> None:
    async with asyncio.timeout(5), tool.open(wall_time_s=0.1) as session:
        tool.say(None)
        await session.finalize()
        await session.cancel()
        await asyncio.sleep(0.15)
        assert str(session.status) == "exited"
        assert not tool.cancel.is_cancelled


async def test_a_tool_that_ignores_its_cancel_token_is_ended_anyway(
    tool: _Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "STOP_GRACE_S", 0.1)
    tool.heeds_cancel = False
    async with asyncio.timeout(5), tool.open() as session:
        tool.say("a")
        await session.cancel()
        with pytest.raises(SessionBroken, match="did not end"):
            await session.finalize()
        assert str(session.status) == "cancelled"
    assert tool.released == 1


async def test_a_result_that_never_comes_does_not_hang_either(
    tool: _Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "STOP_GRACE_S", 0.1)

    async def never() -> None:
        await asyncio.Event().wait()

    async with asyncio.timeout(5), tool.open(finalize=never, wall_time_s=0.1) as session:
        tool.say("a", None)
        with pytest.raises(SessionBroken):
            await session.finalize()
        assert session.status is not None
        assert session.status.reason == "timed_out"


async def test_a_cancel_callback_that_fails_does_not_keep_the_tool_alive(tool: _Tool) -> None:
    async def fail(_: Stop) -> None:
        msg = "cannot"
        raise EngineError(msg)

    tool.cancel = CancelToken(fail)
    async with asyncio.timeout(5), tool.open() as session:
        await session.cancel()
        with pytest.raises(SessionBroken):
            await session.finalize()


@pytest.mark.parametrize("error", [SessionBroken("the engine went away"), ValueError("a bug of the tool")])
async def test_a_failure_reaches_the_reader_after_what_had_arrived(tool: _Tool, error: Exception) -> None:
    async with asyncio.timeout(5), tool.open() as session:
        tool.say("a", error)
        chunk = await session.next_chunk()
        assert chunk is not None
        for _ in range(2):
            with pytest.raises(type(error)) as raised:
                await session.next_chunk()
            assert raised.value is error
        with pytest.raises(type(error)):
            await session.finalize()
        assert str(session.status) == "lost"


async def test_a_read_only_tool_takes_no_input(tool: _Tool) -> None:
    async with tool.open() as session:
        with pytest.raises(NotInteractive):
            await session.send_stdin(Text("x"))


async def test_nothing_can_be_sent_after_the_end(tool: _Tool) -> None:
    async with asyncio.timeout(5), tool.open(stdin=StdinChannel()) as session:
        await session.send_stdin(Text("x"))
        tool.say(None)
        await session.finalize()
        with pytest.raises(SessionClosed):
            await session.send_stdin(Text("y"))


async def test_closing_ends_the_tool_and_wakes_the_reader(tool: _Tool) -> None:
    session = tool.open()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        reading = group.create_task(session.next_chunk())
        await asyncio.sleep(0)
        await session.aclose()
        assert await reading is None
    with pytest.raises(SessionClosed):
        await session.next_chunk()
    assert await session.finalize() == _Sum(lines=0)
    assert await session.read_range(0, 100) == b""
    await session.aclose()
    assert tool.released == 1


async def test_closing_runs_to_its_end_although_the_caller_is_cancelled(tool: _Tool) -> None:
    for turns in range(1, 7):  # a task that was never started has not asked for anything
        another = _Tool(tool.tasks)
        session = another.open()
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(session.aclose())
            for _ in range(turns):
                await asyncio.sleep(0)
            closing.cancel()
        await tool.tasks.aclose(timeout_s=5)
        assert another.released == 1
        await session.aclose()
        assert another.released == 1


async def test_a_dropped_chunk_can_be_read_back_while_the_spool_holds_it(tool: _Tool) -> None:
    async with asyncio.timeout(5), tool.open(Window(max_chunks=1)) as session:
        tool.say("first", "second", None)
        await session.finalize()
        chunk = await session.next_chunk()
        assert chunk is not None
        assert chunk.text == "second"
        start = chunk.span.start
        assert await session.read_range(start - chunk.dropped_bytes, start) == b'{"text":"first"}\n'
