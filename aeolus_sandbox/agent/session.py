"""What a run of an agent leaves: its transcript, and what it used."""

from dataclasses import dataclass, field

from aeolus_sandbox.events import AggregatedUsage
from aeolus_sandbox.model.chat import ChatMessage

GO_ON = ChatMessage.user("Continue exactly where you stopped.")
"""What a model is told whose answer was cut off."""


@dataclass(slots=True)
class AgentSession:
    """One run, during it and after it."""

    session_id: str
    messages: list[ChatMessage] = field(default_factory=list)
    """The whole transcript: every call of a tool in it has its result."""
    usage: AggregatedUsage = field(default_factory=AggregatedUsage)
    """What this run used."""
    turns: int = 0
    """How many answers of the model there were."""
    stop_reason: str | None = None
    """Why the model stopped last, in its provider's words: with `max_tokens`, its answer is not whole."""

    @property
    def text(self) -> str:
        """What the model said last, without its thinking and its calls; the parts of an answer that it went on with."""
        parts: list[str] = []
        for message in reversed(self.messages):
            if message.role == "assistant" and not message.tool_uses:
                parts.append(message.text)
            elif message != GO_ON:
                break
        return "".join(reversed(parts))
