"""What the model is told of a tool's result: bounded, never empty, images as images."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import to_jsonable_python

from aeolus_sandbox.errors import AeolusError
from aeolus_sandbox.model.chat import ImageBlock, TextBlock, ToolResultBlock
from aeolus_sandbox.model.sendable import is_blank
from aeolus_sandbox.streaming.clipping import ClippedText, clip_text
from aeolus_sandbox.streaming.filters import Filter
from aeolus_sandbox.streaming.filters.base import filtered
from aeolus_sandbox.streaming.rendering import render_text

MAX_IMAGES: Final = 8
"""How many images of one result the model gets."""
MAX_IMAGE_CHARACTERS: Final = 5 * 1024 * 1024
"""The largest image in base64; the Messages API takes no larger one."""
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The images that the Messages API takes."""
_ERROR_CHARACTERS: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """What a call of a tool came to."""

    result: JsonValue
    """The result as data, for consumers."""
    text: str
    """The result in words, for the model."""
    images: Sequence[ImageBlock] = ()
    success: bool = True
    """Whether what was run succeeded, as far as the tool can tell."""


@runtime_checkable
class Concluding(Protocol):
    """A result that says in a few words how its tool ended, without what was streamed."""

    def conclusion(self) -> str:
        """Return it; never empty."""
        ...


def result_block(
    tool_use_id: str, outcome: ToolOutcome, *, max_characters: int, filters: Sequence[Filter]
) -> ToolResultBlock:
    """Return what answers a call; an empty text would be refused, so it is said in words."""
    text = clipped(filtered(outcome.text, filters), max_characters)
    blocks: list[TextBlock | ImageBlock] = [TextBlock(text="(no output)" if is_blank(text) else text)]
    blocks += list(outcome.images)[:MAX_IMAGES]
    return ToolResultBlock(tool_use_id=tool_use_id, content=tuple(blocks), is_error=not outcome.success)


def error_block(tool_use_id: str, words: str) -> ToolResultBlock:
    """Return what answers a call that gave no result."""
    words = "the tool failed" if is_blank(words) else words
    return ToolResultBlock(tool_use_id=tool_use_id, content=(TextBlock(text=words),), is_error=True)


def clipped(text: str, max_characters: int) -> str:
    """Return a text as a reader of the screen would see it: head and tail, with a marker where something is missing."""
    gist = ClippedText(max_characters)
    gist.feed(text)
    return gist.rendered(render_text)


def as_json(value: Any) -> JsonValue:
    """Return any value as JSON data; what cannot be is said as text, and bytes in base64."""
    try:
        return _jsonable(value)
    except ValueError:  # a model with bytes in it that are no text
        return _jsonable(value.model_dump() if isinstance(value, BaseModel) else str(value))


def _jsonable(value: Any) -> JsonValue:
    found: JsonValue = to_jsonable_python(value, fallback=str, inf_nan_mode="strings", bytes_mode="base64")
    return found


def conclusion_of(final: BaseModel) -> str:
    """Return in words how a tool ended."""
    return final.conclusion() if isinstance(final, Concluding) else final.model_dump_json()


def succeeded(final: BaseModel) -> bool:
    """Return whether a result says that what was run succeeded; one that does not tell counts as success."""
    success = getattr(final, "success", None)
    if isinstance(success, bool):
        return success
    return bool(getattr(getattr(final, "status", None), "ok", True))


def as_text(value: Any) -> str:
    """Return what a function gave back, in words."""
    return value if isinstance(value, str) else json.dumps(as_json(value), ensure_ascii=False)


def failure_in_words(error: BaseException) -> str:
    """Return what a model is told of an error: ours in full, a wrong argument by its place, else the kind and message."""
    return clip_text(_in_words(error), _ERROR_CHARACTERS)


def _in_words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ValidationError):
        places = (
            f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in error.errors()
        )
        return f"the arguments are wrong: {'; '.join(places)}"
    if isinstance(error, AeolusError):
        return f"{error.code}: {error}"
    return f"{type(error).__name__}: {error}"


def code_of(error: BaseException) -> str | None:
    """Return the code of an error, where it is one of ours."""
    return error.code if isinstance(error, AeolusError) else None
