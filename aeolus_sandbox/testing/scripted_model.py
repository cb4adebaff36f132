"""`ScriptedModel`: a model that answers what a test says, and checks what it is asked.

::

    steps = [
        Turn("Let me ", "look.", Call("terminal", {"command": "ls"})),
        ModelUnavailable("overloaded"),
        lambda request: f"There are {len(request.messages)} messages.",
    ]
    async with ScriptedModel(steps) as model:
        await Agent(model=model, ...).run("What is here?")
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, Self

from aeolus_sandbox.errors import ModelError
from aeolus_sandbox.events import AggregatedUsage
from aeolus_sandbox.model.chat import (
    Answer,
    ChatMessage,
    ChatRequest,
    ContentBlock,
    RedactedThinkingBlock,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
)
from aeolus_sandbox.model.pairing import check_pairing
from aeolus_sandbox.model.sendable import is_blank

_USAGE: Final = AggregatedUsage(requests=1, input_tokens=10, output_tokens=5)


@dataclass(frozen=True)
class Thought:
    """A piece of thinking; a block of its own."""

    text: str
    signature: str = "signed"


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    name: str
    input: dict[str, Any] | None = None
    id: str | None = None
    """None: one that no other call of the conversation has."""
    malformed: str | None = None
    """What the model wrote instead of a JSON object."""


Part = str | Thought | RedactedThinkingBlock | Call | asyncio.Event | Exception
"""A part of an answer: a piece of text (those in a row are one text), thinking, a call, a wait until an event is set,
or an error in the middle."""


@dataclass(frozen=True, init=False)
class Turn:
    """One answer."""

    parts: tuple[Part, ...]
    stop_reason: str | None
    usage: AggregatedUsage

    def __init__(self, *parts: Part, stop_reason: str | None = None, usage: AggregatedUsage = _USAGE) -> None:
        """Say what comes.

        Args:
            parts: In their order.
            stop_reason: None: `tool_use` where there is a call, else `end_turn`.
            usage: What the answer costs.
        """
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "stop_reason", stop_reason)
        object.__setattr__(self, "usage", usage)


Step = Part | Sequence[Part] | Turn | Callable[[ChatRequest], "Part | Sequence[Part] | Turn"]
"""What one request is answered with; a function is asked when the request comes."""


class ScriptedModel:
    """A `ChatModel` that gives one step for each request, in their order.

    A request beyond the last step, steps that were not asked for, and a conversation whose calls and results do not
    belong together are mistakes: they raise an AssertionError where they happen, and again at the end.
    """

    def __init__(self, steps: Iterable[Step], *, name: str = "scripted/model") -> None:
        """Say what to answer to each request; `name` is the model's."""
        self.name = name
        """See `ChatModel.name`."""
        self.requests: list[ChatRequest] = []
        """What was asked, as it was then."""
        self.abandoned = 0
        """How many answers were not read to their end."""
        self._steps = list(steps)
        self._mistakes: list[str] = []
        self._more = asyncio.Condition()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if kind is None:
            self.assert_consumed()

    def assert_consumed(self) -> None:
        """Check that every step was asked for, and that no request was a mistake.

        Raises:
            AssertionError: There was one, or steps are left.
        """
        mistakes = list(self._mistakes)
        if self._steps:
            mistakes.append(
                f"{len(self._steps)} steps have not been asked for, the first is {self._steps[0]!r}"
            )
        if mistakes:
            raise AssertionError("; ".join(mistakes))

    async def wait_for_requests(self, count: int) -> None:
        """Wait until so many requests have come; whoever waits sets the time limit."""
        async with self._more:
            await self._more.wait_for(lambda: len(self.requests) >= count)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[TextDelta | ThinkingDelta | Answer, None]:
        """Give the next step; see `ChatModel.stream`.

        Raises:
            AssertionError: There is no step left, or the calls and results of the request do not belong together.
            Exception: What the step says.
        """
        turn = self._turn(replace(request, messages=tuple(request.messages), tools=tuple(request.tools)))
        async with self._more:
            self._more.notify_all()
        whole = False
        try:
            for part in turn.parts:
                if isinstance(part, Exception):
                    whole = True  # as far as it goes
                    raise part
                if isinstance(part, asyncio.Event):
                    await part.wait()
                elif isinstance(part, str | Thought):
                    yield TextDelta(part) if isinstance(part, str) else ThinkingDelta(part.text)
            whole = True
        finally:
            self.abandoned += not whole
        yield _answer(turn, request)

    def _turn(self, request: ChatRequest) -> Turn:
        self.requests.append(request)
        try:
            check_pairing(request.messages)
        except ModelError as error:
            msg = f"request {len(self.requests)}: {error}"
            raise self._mistake(msg) from error
        if not self._steps:
            msg = f"request {len(self.requests)} is one more than there are steps"
            raise self._mistake(msg)
        step = self._steps.pop(0)
        if callable(step):
            step = step(request)
        if isinstance(step, Turn):
            return step
        return Turn(*step) if isinstance(step, list | tuple) else Turn(step)  # type: ignore[arg-type]

    def _mistake(self, message: str) -> AssertionError:
        self._mistakes.append(message)
        return AssertionError(message)


def _answer(turn: Turn, request: ChatRequest) -> Answer:
    used = sum(len(message.tool_uses) for message in request.messages)
    blocks: list[ContentBlock] = []
    for is_text, parts in groupby(turn.parts, key=lambda part: isinstance(part, str | asyncio.Event)):
        if is_text:
            text = "".join(part for part in parts if isinstance(part, str))
            blocks += [] if is_blank(text) else [TextBlock(text=text)]
            continue
        for part in parts:
            if isinstance(part, Call):
                used += 1
                blocks.append(_tool_use(part, used))
            elif isinstance(part, Thought):
                blocks.append(ThinkingBlock(thinking=part.text, signature=part.signature))
            elif isinstance(part, RedactedThinkingBlock):
                blocks.append(part)
    message = ChatMessage(role="assistant", content=tuple(blocks))
    reason = turn.stop_reason or ("tool_use" if message.tool_uses else "end_turn")
    return Answer(message, reason, turn.usage)


def _tool_use(call: Call, number: int) -> ToolUseBlock:
    """Return a call, with an input of its own: whoever gets it may change it."""
    value = {} if call.malformed is not None else json.loads(json.dumps(call.input or {}))
    return ToolUseBlock(
        id=call.id or f"toolu_{number:06}", name=call.name, input=value, malformed=call.malformed
    )
