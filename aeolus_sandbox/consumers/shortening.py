"""Long output of tools, shortened for compact traces: pure."""

from typing import Final

from pydantic import JsonValue

from aeolus_sandbox.events import StreamEvent, ToolCallCompleted, ToolOutput
from aeolus_sandbox.streaming.clipping import clip_text

MAX_CHARACTERS: Final = 2_000
"""What is kept of each text: head and tail, with a marker between them that says how much is missing."""


def shortened(event: StreamEvent, max_characters: int = MAX_CHARACTERS) -> tuple[StreamEvent, int]:
    """Return an event whose tool output is short, and how many characters were left out."""
    match event:
        case ToolOutput():
            changed = {
                "text": _clipped(event.text, max_characters),
                "chunk": _clipped(event.chunk, max_characters),
            }
        case ToolCallCompleted():
            changed = {"result": _clipped(event.result, max_characters)}
        case _:
            return event, 0
    left_out = sum(_left_out(getattr(event, name), value) for name, value in changed.items())
    return (event.model_copy(update=changed), left_out) if left_out else (event, 0)


def _clipped(value: JsonValue, limit: int) -> JsonValue:
    match value:
        case str():
            return clip_text(value, limit)
        case dict():
            return {key: _clipped(each, limit) for key, each in value.items()}
        case list():
            return [_clipped(each, limit) for each in value]
        case _:
            return value


def _left_out(before: JsonValue, after: JsonValue) -> int:
    match before, after:
        case str(), str():
            return max(0, len(before) - len(after))
        case dict(), dict():
            return sum(_left_out(before[key], after[key]) for key in before)
        case list(), list():
            return sum(map(_left_out, before, after))
        case _:
            return 0
