"""Conversations with Anthropic's models, streamed: a `ChatModel` on the client that `AnthropicModels` shares."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aeolus_sandbox.errors import ModelError, ModelUnavailable
from aeolus_sandbox.model.anthropic_answer import AnswerBuilder
from aeolus_sandbox.model.anthropic_errors import not_the_service
from aeolus_sandbox.model.anthropic_request import request_parameters
from aeolus_sandbox.model.chat import Answer, ChatRequest, TextDelta, ThinkingDelta
from aeolus_sandbox.model.spec import ModelSpec

if TYPE_CHECKING:
    from anthropic import AsyncStream
    from anthropic.types import RawMessageStreamEvent

    from aeolus_sandbox.model.anthropic import AnthropicModels

    Events = AsyncStream[RawMessageStreamEvent]

SILENCE_S: Final = 60.0
"""How long the service may send nothing; it sends a ping now and then while the model thinks."""
_END_S: Final = 1.0
"""How long is waited for the end of a stream whose answer is whole."""


class AnthropicChat:
    """One model for conversations: a `ChatModel`."""

    def __init__(self, models: "AnthropicModels", spec: ModelSpec, *, silence_s: float = SILENCE_S) -> None:
        """Name the model; see `AnthropicModels.chat_model`."""
        self._models = models
        self._spec = spec
        self._silence_s = silence_s

    @property
    def name(self) -> str:
        """Its name, as `provider/name`."""
        return f"{self._spec.provider}/{self._spec.name}"

    async def stream(self, request: ChatRequest) -> AsyncGenerator[TextDelta | ThinkingDelta | Answer, None]:
        """Ask once and yield the answer as it comes, the whole of it last; see `ChatModel.stream`.

        With `thinking_tokens`, the temperature is not sent: the service takes none then.

        Raises:
            ConfigurationError: `max_tokens` is not more than `thinking_tokens`, or one of them is too small.
            ModelUnavailable: See `ChatModel.stream`.
            ModelError: It refused the request, its answer cannot be used, or the calls and results of the conversation
                do not belong together.
        """
        builder = AnswerBuilder()
        async with await self._open(request_parameters(self._spec.name, request)) as events:
            while not builder.ended:
                piece = builder.take(await self._next(events))
                if piece is not None:
                    yield piece
            await self._read_to_end(events)
        yield self._checked(builder.answer())

    async def _open(self, parameters: dict[str, Any]) -> "Events":
        client = await self._models.connected()
        with self._models.mapped_errors(self._spec):
            # The client's time limit is one between two reads, not one of the whole answer.
            events: Events = await client.messages.create(**parameters, stream=True, timeout=self._silence_s)
        if not events.response.headers.get("content-type", "").startswith("text/event-stream"):
            await events.close()
            raise not_the_service(self._spec)
        return events

    async def _next(self, events: "Events") -> object:
        """Return the next event.

        Raises:
            ModelUnavailable: The stream ends here or is damaged, the service was silent for too long, or says that it
                is overloaded.
            ModelError: The service says that the request is wrong.
        """
        with self._models.mapped_errors(self._spec):
            try:
                return await anext(events)
            except (StopAsyncIteration, json.JSONDecodeError, UnicodeDecodeError) as error:
                msg = f"the answer of the model {self._spec.name!r} broke off: try again"
                raise ModelUnavailable(msg) from error

    async def _read_to_end(self, events: "Events") -> None:
        """Read what follows a whole answer, which should be nothing: the connection can then be used again."""
        with suppress(ModelError, TimeoutError):
            async with asyncio.timeout(_END_S):
                while True:
                    await self._next(events)

    def _checked(self, answer: Answer) -> Answer:
        if not all(call.id and call.name for call in answer.message.tool_uses):
            msg = f"the answer of the model {self._spec.name!r} has a call without an id or a name"
            raise ModelError(msg)
        return answer
