"""Puts an answer together from the events of Anthropic's stream.

The events: https://docs.anthropic.com/en/docs/build-with-claude/streaming. The client does not check what it passes on,
so nothing is taken for granted here: what has not the form that it should have is skipped. The client's own helper that
puts answers together is not used: it ends with an error in the middle when the input of a call is no JSON.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json

from aeolus_sandbox.events import AggregatedUsage
from aeolus_sandbox.model.chat import (
    Answer,
    ChatMessage,
    ContentBlock,
    RedactedThinkingBlock,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
)
from aeolus_sandbox.model.sendable import is_blank, well_formed

_COUNTS: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_written_tokens",
}
"""The service's names of the counts, and ours."""


@dataclass(slots=True)
class _GrowingBlock:
    """A block, as far as it has come."""

    start: object
    """As it was announced."""
    kind: str
    pieces: list[str] = field(default_factory=list)
    """Of its text, its thinking, or the JSON of its input."""
    signature: str = ""


class AnswerBuilder:
    """Takes the events of one answer in their order."""

    def __init__(self) -> None:
        self._blocks: dict[int, _GrowingBlock] = {}
        self._counts: dict[str, int] = {}
        self._stop_reason = ""
        self.ended = False
        """Whether the answer is whole."""

    def take(self, event: object) -> TextDelta | ThinkingDelta | None:
        """Take an event, and return what it adds to what can be shown; one that is not known adds nothing."""
        match _text(event, "type"):
            case "message_start":
                self._count(getattr(event, "message", None))
            case "content_block_start":
                return self._start(event)
            case "content_block_delta":
                return self._grow(event)
            case "message_delta":
                self._stop_reason = _text(getattr(event, "delta", None), "stop_reason") or self._stop_reason
                self._count(event)
            case "message_stop":
                self.ended = True
            case _:
                pass
        return None

    def answer(self) -> Answer:
        """Return the whole answer."""
        blocks = [block for growing in self._blocks.values() if (block := _finished(growing)) is not None]
        return Answer(
            ChatMessage(role="assistant", content=tuple(blocks)),
            self._stop_reason or "unknown",
            AggregatedUsage(requests=1, **self._counts),
        )

    def _start(self, event: object) -> TextDelta | ThinkingDelta | None:
        start = getattr(event, "content_block", None)
        block = _GrowingBlock(start, _text(start, "type"), signature=_text(start, "signature"))
        self._blocks[_index(event)] = block
        return _shown(block, _text(start, block.kind)) if block.kind in {"text", "thinking"} else None

    def _grow(self, event: object) -> TextDelta | ThinkingDelta | None:
        block = self._blocks.get(_index(event))
        delta = getattr(event, "delta", None)
        if block is None:
            return None
        match block.kind, _text(delta, "type"):
            case "text", "text_delta":
                return _shown(block, _text(delta, "text"))
            case "thinking", "thinking_delta":
                return _shown(block, _text(delta, "thinking"))
            case "thinking", "signature_delta":
                block.signature += _text(delta, "signature")
            case "tool_use", "input_json_delta":
                block.pieces.append(_text(delta, "partial_json"))
            case _:
                pass
        return None

    def _count(self, holder: object) -> None:
        """Take the counts that are there: each is that of the whole answer so far."""
        usage = getattr(holder, "usage", None)
        for theirs, ours in _COUNTS.items():
            count = getattr(usage, theirs, None)
            if isinstance(count, int) and count >= 0:
                self._counts[ours] = count


def parse_input(text: str) -> dict[str, Any] | None:
    """Return the input that a JSON text holds; None: it is no JSON object, or one that could not be sent back.

    No text at all is what a call without arguments has.
    """
    if is_blank(text):
        return {}
    try:
        value = from_json(text, allow_inf_nan=False)
        json.dumps(value, allow_nan=False)  # `1e400` is JSON, and infinite
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _shown(block: _GrowingBlock, text: str) -> TextDelta | ThinkingDelta | None:
    if not text:
        return None
    text = well_formed(text)
    block.pieces.append(text)
    return TextDelta(text) if block.kind == "text" else ThinkingDelta(text)


def _finished(block: _GrowingBlock) -> ContentBlock | None:
    """Return a block that has come whole; None: it is empty, or of a kind that is not known."""
    whole = "".join(block.pieces)
    match block.kind:
        case "text" if not is_blank(whole):
            return TextBlock(text=whole)
        case "thinking" if whole or block.signature:
            return ThinkingBlock(thinking=whole, signature=block.signature)
        case "redacted_thinking":
            return RedactedThinkingBlock(data=_text(block.start, "data"))
        case "tool_use":
            return _tool_use(block.start, whole)
        case _:
            return None


def _tool_use(start: object, text: str) -> ToolUseBlock:
    announced = getattr(start, "input", None)
    if not text and isinstance(announced, dict) and announced:  # whole from the start
        text = json.dumps(announced)
    value = parse_input(text)
    return ToolUseBlock(
        id=_text(start, "id"),
        name=_text(start, "name"),
        input=value or {},
        malformed=well_formed(text) if value is None else None,
    )


def _text(holder: object, name: str) -> str:
    value = getattr(holder, name, None)
    return value if isinstance(value, str) else ""


def _index(event: object) -> int:
    index = getattr(event, "index", None)
    return index if isinstance(index, int) else 0
