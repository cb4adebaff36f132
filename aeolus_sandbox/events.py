"""What an agent tells while it works: the events of one run, and what receives them.

Rules that every run keeps: `session_started` comes first; a `usage_update` follows each answer of the model and comes
before its `turn_completed`; the last event is `done` or `error`, and there is exactly one of them. `sequence` counts
from 0 without a gap. Secrets are taken out before any consumer gets an event.
"""

from collections.abc import Awaitable
from typing import Annotated, Any, Final, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

SCHEMA_VERSION: Final = 1
"""Version of the events' fields; a reader that knows a lower one may find fields that it does not know."""


class AggregatedUsage(BaseModel):
    """What the model was asked and has answered in one run so far, in tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: int = Field(default=0, ge=0)
    """Requests that were answered."""
    input_tokens: int = Field(default=0, ge=0)
    """Tokens that were sent and neither read from the cache nor written to it."""
    output_tokens: int = Field(default=0, ge=0)
    cache_read_tokens: int = Field(default=0, ge=0)
    """Tokens that were sent and had been cached."""
    cache_written_tokens: int = Field(default=0, ge=0)
    """Tokens that were sent and are cached now."""

    def plus(self, other: "AggregatedUsage") -> Self:
        """Return both together."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in type(self).model_fields}
        return self.model_copy(update=sums)


class Event(BaseModel):
    """Base of all events."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sequence: int = Field(ge=0)
    """Place among the events of the run, from 0."""
    session_id: str
    """The agent's session."""
    schema_version: int = SCHEMA_VERSION


class SessionStarted(Event):
    """The run has begun."""

    type: Literal["session_started"] = "session_started"
    agent: str
    """Name of the agent."""
    model: str
    """Name of the model, as `provider/name`."""


class Content(Event):
    """A piece of the model's text."""

    type: Literal["content"] = "content"
    content: str


class Reasoning(Event):
    """A piece of the model's extended thinking."""

    type: Literal["reasoning"] = "reasoning"
    content: str


class ToolCallStarted(Event):
    """The model calls a tool."""

    type: Literal["tool_call_started"] = "tool_call_started"
    tool_call_id: str
    tool_name: str
    arguments: str
    """The arguments as JSON, as the model gave them; they may not be what the tool takes."""


class ToolOutput(Event):
    """A chunk that a tool streams while it runs."""

    type: Literal["tool_output"] = "tool_output"
    tool_call_id: str
    tool_name: str
    stream: str
    """What kind of output it is, in the tool's words, such as `stdout`, `image` or `summary`."""
    text: str
    """The chunk as text; empty where it is none."""
    chunk: JsonValue
    """The chunk itself, as the tool's model gives it as JSON."""


class ToolCallCompleted(Event):
    """A tool has ended and given a result, which may be that of a program that failed."""

    type: Literal["tool_call_completed"] = "tool_call_completed"
    tool_call_id: str
    tool_name: str
    result: JsonValue
    success: bool
    """Whether what was run succeeded, as far as the tool can tell."""
    duration_ms: float = Field(ge=0)


class ToolCallFailed(Event):
    """A tool gave no result: its arguments were wrong, it was not allowed, it broke, or the run was cancelled."""

    type: Literal["tool_call_failed"] = "tool_call_failed"
    tool_call_id: str
    tool_name: str
    error: str
    code: str | None = None
    """Code of the error, where it is one of ours (see `errors`)."""
    duration_ms: float = Field(default=0.0, ge=0)


class ModelRetried(Event):
    """An answer of the model broke off, or was refused for now, and is asked for again.

    What was shown of it counts as the beginning of the next answer where that begins alike; else the next answer
    comes whole.
    """

    type: Literal["model_retried"] = "model_retried"
    attempt: int = Field(ge=1)
    """Which attempt failed, from 1."""
    error: str
    code: str | None = None
    wait_s: float = Field(ge=0)
    """How long is waited before the next one."""
    shown_characters: int = Field(default=0, ge=0)
    """How many characters of the answer had been passed on."""


class TurnCompleted(Event):
    """The model has answered, and the tools that it called have ended."""

    type: Literal["turn_completed"] = "turn_completed"
    turn: int = Field(ge=1)
    stop_reason: str
    """Why the model stopped, in its provider's words, such as `end_turn` or `tool_use`."""


class UsageUpdate(Event):
    """What the run has used so far."""

    type: Literal["usage_update"] = "usage_update"
    snapshot: AggregatedUsage


class Done(Event):
    """The run has ended well."""

    type: Literal["done"] = "done"


class Error(Event):
    """The run has ended because of an error."""

    type: Literal["error"] = "error"
    message: str
    code: str | None = None
    """Code of the error, where it is one of ours."""


StreamEvent = Annotated[
    SessionStarted
    | Content
    | Reasoning
    | ToolCallStarted
    | ToolOutput
    | ToolCallCompleted
    | ToolCallFailed
    | ModelRetried
    | TurnCompleted
    | UsageUpdate
    | Done
    | Error,
    Field(discriminator="type"),
]
"""Every event, told apart by `type`."""

_adapter: Final[TypeAdapter[Any]] = TypeAdapter(StreamEvent)


def parse_event(data: str | bytes) -> StreamEvent:
    """Return the event that a JSON text holds.

    Raises:
        ValueError: It is not an event.
    """
    event: StreamEvent = _adapter.validate_json(data)
    return event


class StreamConsumer(Protocol):
    """Receives the events of a run, one after the other.

    The run goes on when `on_event` has returned, or what it returns was awaited: a slow consumer slows the run, unless
    it states another rule itself. An exception ends the run with that error, unless the consumer was added with
    `on_error="ignore"`.
    """

    def on_event(self, event: StreamEvent) -> Awaitable[None] | None:
        """Take an event."""
        ...
