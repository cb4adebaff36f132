"""How an agent works: what was chosen when it was built, and where its transcripts go."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from aeolus_sandbox.capabilities import Grants
from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.events import AggregatedUsage
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.model.chat import ChatMessage, ChatModel
from aeolus_sandbox.streaming.filters import Filter

LEAST_OUTPUT_CHARACTERS: Final = 100
"""A cut output says how much is missing, and how it ended; with less, a model would take it for no output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What `Agent` was built with; see there."""

    name: str
    model: ChatModel
    system_prompt: str
    grants: Grants | None
    limits: Limits | None
    temperature: float | None
    max_tokens: int
    thinking_tokens: int | None
    max_turns: int
    max_parallel_tools: int
    max_continuations: int
    attempts: int
    filters: tuple[Filter, ...]
    tool_output_characters: int

    def __post_init__(self) -> None:
        least = {
            "max_tokens": 1,
            "max_turns": 1,
            "max_parallel_tools": 1,
            "max_continuations": 0,
            "attempts": 1,
            "tool_output_characters": LEAST_OUTPUT_CHARACTERS,
        }
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                msg = f"{name}={getattr(self, name)!r} is too small: give at least {smallest}"
                raise ConfigurationError(msg)
        if self.thinking_tokens is not None and not 0 < self.thinking_tokens < self.max_tokens:
            msg = f"thinking_tokens={self.thinking_tokens} must leave room for an answer in max_tokens={self.max_tokens}"
            raise ConfigurationError(msg)


class Transcript(Protocol):
    """Where the messages of a run are written down."""

    async def append(self, messages: Sequence[ChatMessage], usage: AggregatedUsage | None) -> None:
        """Write down the next messages, and what the answer among them used.

        Raises:
            StorageError: They are not written down; the run ends before it does what they say.
            ConversationConflict: Somebody else has gone on with the conversation.
        """
        ...


class Unrecorded:
    """A transcript that is in the session alone."""

    async def append(self, messages: Sequence[ChatMessage], usage: AggregatedUsage | None) -> None:
        """Do nothing."""
