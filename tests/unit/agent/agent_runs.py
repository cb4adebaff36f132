"""What tests of agents share: a streaming tool without a container, and a consumer that keeps what it gets."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel

from aeolus_sandbox.agent.agent import Agent
from aeolus_sandbox.events import Content, Done, Error, Event, StreamEvent
from aeolus_sandbox.exit_status import Stop
from aeolus_sandbox.model.chat import ToolResultBlock
from aeolus_sandbox.streaming.chunks import OutputChunk
from aeolus_sandbox.streaming.policies import Policy, Window
from aeolus_sandbox.streaming.stdin import EndOfInput, StdinChannel
from aeolus_sandbox.streaming.tool import CancelToken, StreamingTool, StreamingToolHandle, ToolContext
from aeolus_sandbox.testing.scripted_model import ScriptedModel, Step

LIMIT_S = 30.0

E = TypeVar("E", bound=Event)


class Recorder:
    """A consumer that keeps all events."""

    def __init__(self) -> None:
        self.events: list[StreamEvent] = []
        self._changed = asyncio.Condition()

    async def on_event(self, event: StreamEvent) -> None:
        self.events.append(event)
        async with self._changed:
            self._changed.notify_all()

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def kinds(self) -> list[str]:
        return [event.type for event in self.events]

    @property
    def text(self) -> str:
        return "".join(event.content for event in self.of(Content))

    async def wait_for(self, kind: type[Event], count: int = 1) -> None:
        async with asyncio.timeout(LIMIT_S), self._changed:
            await self._changed.wait_for(lambda: len(self.of(kind)) >= count)


def check_order(events: Sequence[StreamEvent]) -> None:
    """Check what is promised of the events of every run."""
    assert [event.sequence for event in events] == list(range(len(events)))
    assert len({event.session_id for event in events}) == 1
    assert events[0].type == "session_started"
    assert isinstance(events[-1], Done | Error)
    kinds = [event.type for event in events]
    assert sum(kinds.count(each) for each in ("done", "error")) == 1
    assert kinds.count("session_started") == 1
    updated = False
    open_calls: set[str] = set()
    for event in events:
        match event.type:
            case "usage_update":
                assert not updated
                updated = True
            case "content" | "reasoning" | "model_retried":
                assert not updated
            case "turn_completed":
                assert updated
                assert not open_calls
                updated = False
            case "tool_call_started":
                assert updated
                assert event.tool_call_id not in open_calls
                open_calls.add(event.tool_call_id)
            case "tool_output":
                assert event.tool_call_id in open_calls
            case "tool_call_completed" | "tool_call_failed":
                open_calls.remove(event.tool_call_id)
            case _:
                pass
    assert not open_calls


def results(model: ScriptedModel, request: int = -1) -> list[ToolResultBlock]:
    """Return the results of tools in the last message that the model was sent."""
    last = model.requests[request].messages[-1]
    return [block for block in last.content if isinstance(block, ToolResultBlock)]


def told(model: ScriptedModel, request: int = -1) -> list[str]:
    """Return the texts of the results in the last message that the model was sent."""
    blocks = results(model, request)
    return ["".join(part.text for part in block.content if part.type == "text") for block in blocks]


async def run(steps: Sequence[Step], **settings: Any) -> tuple[Recorder, ScriptedModel]:
    """Run an agent over a script to its end, and check what every run promises."""
    recorder = Recorder()
    async with asyncio.timeout(LIMIT_S), ScriptedModel(steps) as model:
        await Agent(model=model, **settings).run_streaming("Begin.", recorder)
    check_order(recorder.events)
    return recorder, model


class SaysInput(BaseModel):
    """What the tool says."""

    lines: tuple[str, ...] = ()
    waits: bool = False
    """Whether it then waits until it is cancelled."""
    session_id: str | None = None


class Said(OutputChunk):
    """A piece of text."""

    text: str

    def flow(self) -> str:
        return "said"

    def as_text(self) -> str:
        return self.text

    def with_text(self, text: str) -> "Said":
        return self.model_copy(update={"text": text})


class Ended(BaseModel):
    """How it ended."""

    success: bool = True
    was_cancelled: bool = False
    session_id: str | None = None

    def conclusion(self) -> str:
        return "[said all]" if self.success else "[exited with code 1]"


class Says(StreamingTool[SaysInput, Said, Ended]):
    """Say lines; in this process."""

    name: ClassVar[str] = "says"
    description: ClassVar[str] = "Say lines."
    Input = SaysInput
    OutputChunk = Said
    Final = Ended
    policy: Policy = Window(max_chunks=100_000)

    def __init__(self, *, success: bool = True) -> None:
        self.success = success
        self.cancelled = 0
        self.inputs: list[SaysInput] = []

    async def start(self, tool_input: SaysInput, context: ToolContext) -> StreamingToolHandle[Said, Ended]:
        self.inputs.append(tool_input)
        stdin = StdinChannel()
        ending = Ended(success=self.success, session_id=tool_input.session_id)
        end = asyncio.Event()

        async def cancel(stop: Stop) -> None:
            self.cancelled += 1
            ending.was_cancelled = True
            end.set()
            await stdin.aclose()

        async def chunks() -> AsyncIterator[Said]:
            for line in tool_input.lines:
                yield Said(text=line)
            if tool_input.waits:
                await end.wait()
            else:
                async for event in stdin:  # it ends when nobody answers
                    if isinstance(event, EndOfInput):
                        break

        async def result() -> Ended:
            return ending

        return StreamingToolHandle(
            chunks=chunks(), finalize=result(), stdin=stdin, cancel=CancelToken(cancel)
        )
