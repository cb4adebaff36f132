"""A tool of one's own is a few lines: the sensor of the examples, one that takes input, and one that misbehaves."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel

from aeolus_sandbox import (
    Buffer,
    CancelToken,
    CapabilityDenied,
    CapabilityKind,
    EndOfInput,
    Grants,
    IsolationMode,
    OutputChunk,
    Policy,
    SandboxProfile,
    SessionBroken,
    SessionClosed,
    SessionManager,
    Signal,
    StdinChannel,
    Stop,
    StreamingTool,
    StreamingToolHandle,
    Text,
    ToolContext,
    UnixSignal,
    Window,
)
from aeolus_sandbox.streaming import session as session_module
from aeolus_sandbox.testing.local_engine import LocalEngine
from examples.sensor_tool import SensorInput, SensorMonitor, SensorSummary


@pytest.fixture
async def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SessionManager]:
    monkeypatch.setenv("AEOLUS_STATE", str(tmp_path / "state.db"))
    async with asyncio.timeout(20), LocalEngine() as engine, SessionManager(engine=engine) as opened:
        yield opened


# The examples' read-only tool.


async def test_the_sensor_streams_readings_and_sums_up(manager: SessionManager) -> None:
    async with await manager.open(SensorMonitor(), SensorInput(device_id="a", readings=4)) as session:
        readings = [reading async for reading in session]
        summary = await session.finalize()
    assert [round(reading.value) for reading in readings] == [20, 25, 20, 15]
    assert readings[0].unit == "°C"
    assert summary == SensorSummary(readings_count=4, average=20, min=15, max=25)
    assert str(session.status) == "exited"


async def test_its_window_holds_the_newest_fifty(manager: SessionManager) -> None:
    async with await manager.open(SensorMonitor(), SensorInput(device_id="a", readings=80)) as session:
        await session.finalize()
        assert session.context_window().chunks_dropped == 30
        assert [reading.number async for reading in session] == list(range(30, 80))


async def test_the_caller_chooses_another_policy(manager: SessionManager) -> None:
    asked = SensorInput(device_id="a", readings=80)
    async with await manager.open(SensorMonitor(), asked, policy=Buffer()) as session:
        assert [reading.number async for reading in session] == list(range(80))


async def test_the_sensor_can_be_cancelled(manager: SessionManager) -> None:
    asked = SensorInput(device_id="a", readings=100_000, interval_s=0.001)
    async with await manager.open(SensorMonitor(), asked) as session:
        assert await session.next_chunk() is not None
        await session.cancel()
        assert (await session.finalize()).readings_count > 0
        assert str(session.status) == "cancelled"


# A bidirectional tool.


class Nothing(BaseModel):
    pass


class Said(OutputChunk):
    text: str


class Heard(BaseModel):
    words: int
    ended_by: str


class Parrot(StreamingTool[Nothing, Said, Heard]):
    """Repeat what it is told."""

    name: ClassVar[str] = "parrot"
    description: ClassVar[str] = "Repeat what it is told"
    Input = Nothing
    OutputChunk = Said
    Final = Heard
    policy: Policy = Window()
    required_capability = CapabilityKind.CUSTOM

    async def start(self, tool_input: Nothing, context: ToolContext) -> StreamingToolHandle[Said, Heard]:
        stdin, heard = StdinChannel(), Heard(words=0, ended_by="closed")

        async def close(stop: Stop) -> None:
            heard.ended_by = stop.reason
            await stdin.aclose()

        async def chunks() -> AsyncIterator[Said]:
            async for event in stdin:
                match event:
                    case Text(text):
                        heard.words += len(text.split())
                        yield Said(text=text.upper())
                    case Signal(signal):
                        yield Said(text=f"ignores {signal}")
                    case EndOfInput():
                        await stdin.aclose()
                    case _:
                        pass

        async def result() -> Heard:
            return heard

        return StreamingToolHandle(chunks=chunks(), finalize=result(), stdin=stdin, cancel=CancelToken(close))


@pytest.fixture
async def talking() -> AsyncIterator[SessionManager]:
    grants = Grants.of(CapabilityKind.CUSTOM)
    async with (
        asyncio.timeout(20),
        LocalEngine() as engine,
        SessionManager(engine=engine, grants=grants) as opened,
    ):
        yield opened


async def test_a_bidirectional_tool_answers_while_it_runs(talking: SessionManager) -> None:
    async with await talking.open(Parrot(), Nothing()) as session:
        await session.send_stdin(Text("hello there"))
        assert await session.next_chunk() == Said(text="HELLO THERE", span=(0, 23))
        await session.send_stdin(Signal(UnixSignal.SIGTERM))
        chunk = await session.next_chunk()
        assert chunk is not None
        assert chunk.text == "ignores SIGTERM"
        await session.send_stdin(EndOfInput())
        assert await session.next_chunk() is None
        assert await session.finalize() == Heard(words=2, ended_by="closed")
        with pytest.raises(SessionClosed):
            await session.send_stdin(Text("anybody?"))


async def test_a_bidirectional_tool_is_cancelled_while_it_waits_for_input(talking: SessionManager) -> None:
    async with await talking.open(Parrot(), Nothing()) as session:
        await session.cancel()
        assert await session.finalize() == Heard(words=0, ended_by="cancelled")


async def test_a_tool_that_asks_for_a_grant_does_not_start_without_it(manager: SessionManager) -> None:
    with pytest.raises(CapabilityDenied, match="custom"):
        await manager.open(Parrot(), Nothing())


# Tools that misbehave.


class Stubborn(StreamingTool[Nothing, Said, Heard]):
    """Never ends and never looks at its cancel token."""

    name: ClassVar[str] = "stubborn"
    description: ClassVar[str] = "Never end"
    Input = Nothing
    OutputChunk = Said
    Final = Heard
    policy: Policy = Window()

    async def start(self, tool_input: Nothing, context: ToolContext) -> StreamingToolHandle[Said, Heard]:
        async def chunks() -> AsyncIterator[Said]:
            while True:
                yield Said(text="no")
                await asyncio.sleep(0.001)

        async def result() -> Heard:
            raise AssertionError

        return StreamingToolHandle(chunks=chunks(), finalize=result())


async def test_a_tool_that_ignores_its_cancel_token_is_ended_anyway(
    manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "STOP_GRACE_S", 0.1)
    session = await manager.open(Stubborn(), Nothing())
    assert await session.next_chunk() is not None
    await session.aclose()
    with pytest.raises(SessionBroken, match="did not end when it was told to"):
        await session.finalize()
    assert manager.open_sessions == []


# A tool in a container.


class Counted(BaseModel):
    code: int | None


class WordCounter(StreamingTool[SensorInput, Said, Counted]):
    """Count to a number, in a container."""

    name: ClassVar[str] = "counter"
    description: ClassVar[str] = "Count in a container"
    Input = SensorInput
    OutputChunk = Said
    Final = Counted
    isolation = IsolationMode.CONTAINER

    async def start(
        self, tool_input: SensorInput, context: ToolContext
    ) -> StreamingToolHandle[Said, Counted]:
        sandbox = await context.park(SandboxProfile(image="local"))
        process = await sandbox.exec(["seq", "1", str(tool_input.readings)])

        async def chunks() -> AsyncIterator[Said]:
            while pieces := await process.read():
                for piece in pieces:
                    yield Said(text=piece.data.decode())

        async def result() -> Counted:
            return Counted(code=(await process.wait()).code)

        return StreamingToolHandle(chunks=chunks(), finalize=result(), cancel=CancelToken(process.stop))


async def test_a_tool_in_a_container_is_as_short(manager: SessionManager) -> None:
    async with await manager.open(WordCounter(), SensorInput(device_id="a", readings=3)) as session:
        assert "".join([chunk.text async for chunk in session]) == "1\n2\n3\n"
        assert await session.finalize() == Counted(code=0)
