"""A bidirectional tool: a small text adventure that is told where to go, and takes signals."""
# ruff: noqa: T201

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar, Self

from pydantic import BaseModel

from aeolus_sandbox import (
    CancelToken,
    EndOfInput,
    OutputChunk,
    Policy,
    SessionManager,
    Signal,
    StdinChannel,
    StdinEvent,
    Stop,
    StreamingTool,
    StreamingToolHandle,
    Text,
    ToolContext,
    UnixSignal,
    Window,
)

WAYS = {
    "hall": {"north": "garden", "down": "cellar"},
    "garden": {"south": "hall"},
    "cellar": {"up": "hall"},
}


class AdventureInput(BaseModel):
    """Where the adventure begins."""

    room: str = "hall"


class Telling(OutputChunk):
    """A piece of the story, which is one text."""

    text: str

    @classmethod
    def combined(cls, chunks: Sequence[Self]) -> Self:
        """Return the whole story: `Buffer` then gives one chunk."""
        return cls(text="".join(chunk.text for chunk in chunks))

    def flow(self) -> str:
        """Say that the story runs on, so that a filter finds what two pieces share."""
        return "story"

    def as_text(self) -> str:
        """Return what a person or a model reads, instead of JSON."""
        return self.text

    def with_text(self, text: str) -> Self:
        """Return this piece with another text."""
        return self.model_copy(update={"text": text})


class AdventureResult(BaseModel):
    """Where it ended, and how."""

    room: str
    moves: int = 0
    ended_by: str = ""


class Adventure(StreamingTool[AdventureInput, Telling, AdventureResult]):
    """Walk through a house by words; SIGINT asks where you are, SIGTERM ends it."""

    name: ClassVar[str] = "adventure"
    description: ClassVar[str] = "Tells a small adventure; takes directions as text."
    Input = AdventureInput
    OutputChunk = Telling
    Final = AdventureResult
    policy: Policy = Window()

    async def start(
        self, tool_input: AdventureInput, context: ToolContext
    ) -> StreamingToolHandle[Telling, AdventureResult]:
        """Begin in the room that was asked for."""
        stdin = StdinChannel()
        state = AdventureResult(room=tool_input.room)

        async def end(stop: Stop) -> None:
            state.ended_by = stop.reason
            await stdin.aclose()  # the loop below then ends

        async def chunks() -> AsyncIterator[Telling]:
            yield Telling(text=f"You are in the {state.room}.\n")
            async for event in stdin:
                if told := answer(state, event):
                    yield Telling(text=f"{told}\n")
                if state.ended_by:
                    await stdin.aclose()

        async def result() -> AdventureResult:
            return state

        return StreamingToolHandle(chunks=chunks(), finalize=result(), stdin=stdin, cancel=CancelToken(end))


def answer(state: AdventureResult, event: StdinEvent) -> str:
    """Return what is told after an event, which may change the state."""
    match event:
        case Text(text):
            return moved(state, text.strip())
        case Signal(UnixSignal.SIGINT):
            return f"You have come to the {state.room} in {state.moves} moves."
        case Signal(UnixSignal.SIGTERM) | EndOfInput():
            state.ended_by = "farewell"
            return "Farewell."
        case _:
            return ""


def moved(state: AdventureResult, direction: str) -> str:
    """Return what is seen after a step in a direction."""
    room = WAYS[state.room].get(direction)
    if room is None:
        return "There is no way there."
    state.room, state.moves = room, state.moves + 1
    return f"You are in the {room}."


async def main() -> None:
    """Take a walk, ask where it led, and leave."""
    events = (Text("north"), Text("north"), Signal(UnixSignal.SIGINT), Signal(UnixSignal.SIGTERM))
    async with SessionManager() as manager, await manager.open(Adventure(), AdventureInput()) as session:
        for event in events:
            await session.send_stdin(event)
        async for telling in session:
            print(telling.text, end="")
        print(await session.finalize())


if __name__ == "__main__":
    asyncio.run(main())
