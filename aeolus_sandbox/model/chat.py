"""A conversation with a language model that can call tools: plain data, and what we ask of a model.

The blocks and their rules are those of the Messages API (https://docs.anthropic.com/en/api/messages); they are data
of our own, so that a transcript can be stored, replayed and sent elsewhere without any client.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from aeolus_sandbox.events import AggregatedUsage


class _Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TextBlock(_Block):
    """Text."""

    type: Literal["text"] = "text"
    text: str


class ImageBlock(_Block):
    """An image that is given to the model."""

    type: Literal["image"] = "image"
    media_type: str
    """Such as `image/png`."""
    data: str
    """In base64."""


class ThinkingBlock(_Block):
    """Extended thinking; it goes back to the model unchanged, or the signature does not hold."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str


class RedactedThinkingBlock(_Block):
    """Thinking that only the provider can read."""

    type: Literal["redacted_thinking"] = "redacted_thinking"
    data: str


class ToolUseBlock(_Block):
    """A call of a tool."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]
    malformed: str | None = None
    """What the model wrote where it is no JSON object; `input` is then empty. Never sent."""


class ToolResultBlock(_Block):
    """What a tool gave back; answers the call of its id, in the message right after it."""

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: tuple[TextBlock | ImageBlock, ...]
    is_error: bool = False


ContentBlock = Annotated[
    TextBlock | ImageBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock,
    Field(discriminator="type"),
]


class ChatMessage(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["user", "assistant"]
    content: tuple[ContentBlock, ...]

    @classmethod
    def user(cls, text: str) -> Self:
        """Return a user's message."""
        return cls(role="user", content=(TextBlock(text=text),))

    @classmethod
    def assistant(cls, text: str) -> Self:
        """Return a model's message."""
        return cls(role="assistant", content=(TextBlock(text=text),))

    @property
    def text(self) -> str:
        """All its text, without thinking, calls and results."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The calls in it."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


class ToolSpec(BaseModel):
    """A tool as the model sees it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str
    input_schema: dict[str, Any]
    """JSON schema of the arguments, an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What a model is asked. The system prompt, the tools and the messages so far are the stable prefix to cache."""

    messages: Sequence[ChatMessage]
    system: str = ""
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = 8192
    temperature: float | None = None
    thinking_tokens: int | None = None
    """How many tokens the model may think; None: no extended thinking."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """The next piece of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole answer; the last that a stream gives."""

    message: ChatMessage
    """What the model said; empty texts are left out."""
    stop_reason: str
    """`end_turn`, `tool_use`, `max_tokens`, `stop_sequence`, `pause_turn`, `refusal`, or what the provider says."""
    usage: AggregatedUsage


class ChatModel(Protocol):
    """A language model that can call tools."""

    @property
    def name(self) -> str:
        """Its name, as `provider/name`."""
        ...

    def stream(self, request: ChatRequest) -> AsyncGenerator[TextDelta | ThinkingDelta | Answer, None]:
        """Ask once and yield the answer as it comes, the whole of it last; closing the iterator ends the request.

        Nothing is retried here: whoever asks knows what it has passed on.

        Raises:
            ModelUnavailable: It was overloaded, limited the rate, could not be reached, broke off, or was silent for
                too long; asking again may help (`retry_after_s` says when).
            ModelError: It refused the request.
        """
        ...
