"""A request as Anthropic's Messages API takes it (https://docs.anthropic.com/en/api/messages).

The API refuses empty texts and empty messages: what would be empty is left out, or said in words.
"""

from collections.abc import Iterator
from typing import Any, Final

from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.model.chat import (
    ChatMessage,
    ChatRequest,
    ContentBlock,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
)
from aeolus_sandbox.model.pairing import check_pairing
from aeolus_sandbox.model.sendable import is_blank, well_formed

LEAST_THINKING_TOKENS: Final = 1024
"""The smallest budget for extended thinking that the API takes."""
_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""What the API takes as an image."""
_CACHED_MESSAGES: Final = 2
"""How many messages of the user end a part to cache: with the tools and the system prompt 4, which is the most.

The last is read from by the next request. The one before is what this request reads, also when more than the 20 blocks
have come since in which the service looks for an earlier end by itself
(https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching).
"""
_THINKING: Final = ("thinking", "redacted_thinking")


def request_parameters(name: str, request: ChatRequest) -> dict[str, Any]:
    """Return what the client's `messages.create` is given.

    The client has no parameter for the temperature any more, so that it goes beside its parameters. With extended thinking it is left out, because the API takes none then.

    Raises:
        ConfigurationError: The numbers of tokens do not go together.
        ModelError: The calls and results of the conversation do not belong together.
    """
    _check_tokens(request)
    check_pairing(request.messages)
    parameters: dict[str, Any] = {
        "model": name,
        "max_tokens": request.max_tokens,
        "messages": _messages(request),
    }
    if not is_blank(request.system):
        parameters["system"] = [_cached(_text(request.system))]
    if request.tools:
        *others, last = map(_tool, request.tools)
        parameters["tools"] = [*others, _cached(last)]
    if request.thinking_tokens is not None:
        parameters["thinking"] = {"type": "enabled", "budget_tokens": request.thinking_tokens}
    elif request.temperature is not None:
        parameters["extra_body"] = {"temperature": request.temperature}
    return parameters


def _check_tokens(request: ChatRequest) -> None:
    if request.max_tokens < 1:
        msg = f"max_tokens is {request.max_tokens}: an answer needs at least one"
        raise ConfigurationError(msg)
    thinking = request.thinking_tokens
    if thinking is None:
        return
    if thinking < LEAST_THINKING_TOKENS:
        msg = f"thinking_tokens is {thinking}: give at least {LEAST_THINKING_TOKENS}, or none"
        raise ConfigurationError(msg)
    if request.max_tokens <= thinking:
        msg = f"max_tokens ({request.max_tokens}) must be more than thinking_tokens ({thinking}): the answer comes on top"
        raise ConfigurationError(msg)


def _messages(request: ChatRequest) -> list[dict[str, Any]]:
    messages = [sent for message in request.messages for sent in _message(message)]
    if messages[-1]["role"] == "assistant":
        _make_continuable(messages[-1], thinking=request.thinking_tokens is not None)
    users = [message for message in messages if message["role"] == "user"]
    for message in users[-_CACHED_MESSAGES:]:
        message["content"][-1] = _cached(message["content"][-1])
    return messages


def _message(message: ChatMessage) -> Iterator[dict[str, Any]]:
    """Yield a message; a user's that is empty says so, a model's is left out."""
    content = [sent for block in message.content for sent in _block(block)]
    if message.role == "user":
        content = content or [_text("(empty message)")]
    else:
        while content and content[-1]["type"] in _THINKING:  # no message may end with it
            content.pop()
    if content:
        yield {"role": message.role, "content": content}


def _make_continuable(message: dict[str, Any], *, thinking: bool) -> None:
    """Make the beginning of an answer, which the model goes on with, what the API takes as one."""
    if not thinking:
        message["content"] = [block for block in message["content"] if block["type"] not in _THINKING]
    last = message["content"][-1]
    if last["type"] == "text":
        message["content"][-1] = last | {"text": last["text"].rstrip()}


def _block(block: ContentBlock) -> Iterator[dict[str, Any]]:
    match block:
        case TextBlock() if is_blank(block.text):
            return
        case TextBlock():
            yield _text(block.text)
        case ImageBlock():
            yield _image(block)
        case ToolUseBlock():
            yield {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
        case ToolResultBlock():
            yield _result(block)
        case ThinkingBlock() | RedactedThinkingBlock():
            yield block.model_dump()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": well_formed(text)}


def _image(block: ImageBlock) -> dict[str, Any]:
    if block.media_type not in _IMAGES or not block.data:
        return _text(f"(an image of the type {block.media_type}, which cannot be shown to you)")
    source = {"type": "base64", "media_type": block.media_type, "data": block.data}
    return {"type": "image", "source": source}


def _result(block: ToolResultBlock) -> dict[str, Any]:
    content = [sent for part in block.content for sent in _block(part)]
    result = {
        "type": "tool_result",
        "tool_use_id": block.tool_use_id,
        "content": content or [_text("(no output)")],
    }
    return result | {"is_error": True} if block.is_error else result


def _tool(tool: ToolSpec) -> dict[str, Any]:
    described = {} if is_blank(tool.description) else {"description": well_formed(tool.description)}
    return {"name": tool.name, **described, "input_schema": tool.input_schema}


def _cached(part: dict[str, Any]) -> dict[str, Any]:
    return part | {"cache_control": {"type": "ephemeral"}}
