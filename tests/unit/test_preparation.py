"""What must be made before a tool's work begins costs its session no time, and cannot hold it up for ever."""

import asyncio
from collections.abc import AsyncIterator

from pydantic import BaseModel

from aeolus_sandbox import (
    Limits,
    OutputChunk,
    SessionManager,
    StreamingTool,
    StreamingToolHandle,
    Window,
)
from aeolus_sandbox.exit_status import ExitStatus, Stop
from aeolus_sandbox.streaming.sandbox import ImagePreparation
from aeolus_sandbox.streaming.tool import CancelToken, ToolContext
from aeolus_sandbox.tools.code_interpreter import CodeChunk, CodeResult
from aeolus_sandbox.tools.code_interpreter.preparing import handle_after

WALL_TIME_S = 0.2
LONGER_S = 0.6


class Nothing(BaseModel):
    """No input, and no result."""


class Said(OutputChunk):
    """One word."""

    word: str

    def as_text(self) -> str:
        return self.word


class SlowToBegin(StreamingTool[Nothing, Said, Nothing]):
    """Prepares for longer than its session's wall time, and then works until it is told to end, where it is to."""

    name = "slow_to_begin"
    description = "Prepares."
    Input = Nothing
    OutputChunk = Said
    Final = Nothing
    policy = Window(max_chunks=10)

    def __init__(self, *, works_on: bool) -> None:
        self._works_on = works_on

    async def start(self, tool_input: Nothing, context: ToolContext) -> StreamingToolHandle[Said, Nothing]:
        prepared, cancel = asyncio.Event(), CancelToken()

        async def chunks() -> AsyncIterator[Said]:
            await asyncio.sleep(LONGER_S)
            prepared.set()
            yield Said(word="begun")
            if self._works_on:
                await cancel.wait_cancelled()

        async def result() -> Nothing:
            return Nothing()

        return StreamingToolHandle(chunks=chunks(), finalize=result(), cancel=cancel, prepared=prepared)


async def test_the_clock_stands_still_while_a_tool_prepares() -> None:
    async with (
        asyncio.timeout(30),
        SessionManager(limits=Limits(wall_time_s=WALL_TIME_S)) as manager,
        await manager.open(SlowToBegin(works_on=False), Nothing()) as session,
    ):
        assert [chunk.word async for chunk in session] == ["begun"]
        await session.finalize()
        assert session.status == ExitStatus(reason="exited")


async def test_the_clock_goes_on_once_the_work_begins() -> None:
    async with (
        asyncio.timeout(30),
        SessionManager(limits=Limits(wall_time_s=WALL_TIME_S)) as manager,
        await manager.open(SlowToBegin(works_on=True), Nothing()) as session,
    ):
        await session.finalize()
        assert session.status is not None
        assert session.status.reason == "timed_out"


class Building(ImagePreparation):
    """A build that says two things, and then waits until it is cancelled or `finish` is called."""

    def __init__(self) -> None:
        self._news = ["one", "two"]
        self._over = asyncio.Event()
        self.cancelled = False

    def __aiter__(self) -> AsyncIterator[str]:
        return self._steps()

    async def _steps(self) -> AsyncIterator[str]:
        for news in self._news:
            yield news
        await self._over.wait()

    async def reference(self) -> str:
        return "aeolus/python-packages:1"

    def cancel(self) -> None:
        self.cancelled = True
        self._over.set()

    def finish(self) -> None:
        """Have the image."""
        self._over.set()


def _begun(images: list[str]) -> StreamingToolHandle[CodeChunk, CodeResult]:
    async def chunks() -> AsyncIterator[CodeChunk]:
        yield CodeChunk(stream="stdout", content=images[-1])

    async def result() -> CodeResult:
        return CodeResult(success=True, status=ExitStatus(reason="exited", code=0), execution_time_ms=1)

    return StreamingToolHandle(chunks=chunks(), finalize=result())


async def test_news_of_the_build_come_first_and_then_what_the_code_gives() -> None:
    building, images = Building(), list[str]()

    async def begin(image: str) -> StreamingToolHandle[CodeChunk, CodeResult]:
        images.append(image)
        return _begun(images)

    handle = handle_after(building, begin, takes_input=False)
    chunks = _chunks(handle)
    assert [(await anext(chunks)).content, (await anext(chunks)).content] == ["one", "two"]
    assert handle.prepared is not None
    assert not handle.prepared.is_set()
    building.finish()
    last = await anext(chunks)
    assert (last.stream, last.content) == ("stdout", "aeolus/python-packages:1")
    assert handle.prepared.is_set()
    assert (await handle.finalize).success


async def test_code_whose_build_is_stopped_never_begins_and_its_result_says_why() -> None:
    building = Building()

    async def begin(image: str) -> StreamingToolHandle[CodeChunk, CodeResult]:
        raise AssertionError(image)

    handle = handle_after(building, begin, takes_input=False)
    news = [chunk.content async for chunk in _stopped_at(handle, "two")]
    assert news == ["one", "two"]
    assert building.cancelled
    result = await handle.finalize
    assert (result.success, result.status.reason) == (False, "cancelled")


async def _chunks(handle: StreamingToolHandle[CodeChunk, CodeResult]) -> AsyncIterator[CodeChunk]:
    async for chunk in handle.chunks:
        assert isinstance(chunk, CodeChunk)
        yield chunk


async def _stopped_at(
    handle: StreamingToolHandle[CodeChunk, CodeResult], word: str
) -> AsyncIterator[CodeChunk]:
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        async for chunk in _chunks(handle):
            yield chunk
            if chunk.content == word:
                group.create_task(handle.cancel.cancel(Stop(reason="cancelled")))
