"""Which requests the Messages API refuses, as far as a program that speaks to it can break its rules.

Written from its reference (https://docs.anthropic.com/en/api/messages) and from the refusals that people report; it
shares no code with the library's own checks, so that each proves the other.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, Final

_TOP: Final = frozenset(
    [
        "model",
        "max_tokens",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "temperature",
        "top_p",
        "top_k",
        "stop_sequences",
        "metadata",
        "stream",
        "service_tier",
    ]
)
_FIELDS: Final[dict[str, tuple[set[str], set[str]]]] = {
    "text": ({"text"}, {"cache_control", "citations"}),
    "image": ({"source"}, {"cache_control"}),
    "thinking": ({"thinking", "signature"}, set()),
    "redacted_thinking": ({"data"}, set()),
    "tool_use": ({"id", "name", "input"}, {"cache_control"}),
    "tool_result": ({"tool_use_id"}, {"content", "is_error", "cache_control"}),
}
"""Of each block: the fields that it must have, and those that it may have."""
_ALLOWED: Final = {
    "user": {"text", "image", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
}
_IMAGES: Final = {"image/jpeg", "image/png", "image/gif", "image/webp"}
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MOST_BREAKPOINTS: Final = 4
_LEAST_THINKING: Final = 1024

Json = dict[str, Any]


def refusal(method: str, path: str, headers: dict[str, str], body: object) -> tuple[int, str, str] | None:
    """Return the status, the type and the message of the error that the API gives; None: it takes the request."""
    if (method, path) != ("POST", "/v1/messages"):
        return 404, "not_found_error", f"{method} {path}"
    if not headers.get("x-api-key") and not headers.get("authorization"):
        return 401, "authentication_error", "x-api-key header is required"
    if "anthropic-version" not in headers:
        return 400, "invalid_request_error", "anthropic-version: header is required"
    fault = next(_faults(body), None)
    return None if fault is None else (400, "invalid_request_error", fault)


def _faults(body: object) -> Iterator[str]:
    if not isinstance(body, dict):
        yield "the request must be an object"
        return
    yield from (f"{name}: Extra inputs are not permitted" for name in body if name not in _TOP)
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model: Field required"
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    yield from _faults_of_thinking(body)
    yield from _faults_of_system(body.get("system", ""))
    yield from _faults_of_tools(body.get("tools", []))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    for place, message in enumerate(messages):
        yield from _faults_of_message(f"messages.{place}", message)
    yield from _faults_of_order(messages)
    yield from _faults_of_last(messages[-1], thinks=body.get("thinking", {}).get("type") == "enabled")
    if _breakpoints(body) > _MOST_BREAKPOINTS:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {_breakpoints(body)}."


def _faults_of_thinking(body: Json) -> Iterator[str]:
    temperature = body.get("temperature", 1)
    if not isinstance(temperature, int | float) or not 0 <= temperature <= 1:
        yield "temperature: range: 0..1"
    thinking = body.get("thinking", {"type": "disabled"})
    if thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or budget < _LEAST_THINKING:
        yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
    elif budget >= body.get("max_tokens", 0):
        yield "`max_tokens` must be greater than `thinking.budget_tokens`"
    if temperature != 1:
        yield "`temperature` may only be set to 1 when thinking is enabled"


def _faults_of_system(system: object) -> Iterator[str]:
    if isinstance(system, str):
        return
    for place, block in enumerate(system if isinstance(system, list) else [None]):
        yield from _faults_of_block(f"system.{place}", block, {"text"})


def _faults_of_tools(tools: object) -> Iterator[str]:
    names: set[str] = set()
    for place, tool in enumerate(tools if isinstance(tools, list) else [None]):
        where = f"tools.{place}"
        if not isinstance(tool, dict) or not _NAME.fullmatch(str(tool.get("name", ""))):
            yield f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            continue
        extra = tool.keys() - {"name", "description", "input_schema", "cache_control", "type"}
        yield from (f"{where}.{name}: Extra inputs are not permitted" for name in extra)
        schema = tool.get("input_schema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            yield f"{where}.input_schema.type: Field required"
        if tool["name"] in names:
            yield "tools: Tool names must be unique."
        names.add(tool["name"])


def _faults_of_message(where: str, message: object) -> Iterator[str]:
    if not isinstance(message, dict) or message.get("role") not in _ALLOWED:
        yield f"{where}.role: Input should be 'user' or 'assistant'"
        return
    yield from (
        f"{where}.{name}: Extra inputs are not permitted" for name in message.keys() - {"role", "content"}
    )
    content = message.get("content")
    if not content or not isinstance(content, str | list):
        yield f"{where}: all messages must have non-empty content"
        return
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for place, block in enumerate(blocks):
        yield from _faults_of_block(f"{where}.content.{place}", block, _ALLOWED[message["role"]])
    if _kind(blocks[-1]) in {"thinking", "redacted_thinking"}:
        yield f"{where}: The final block in an assistant message cannot be `thinking`."


def _faults_of_block(where: str, block: object, allowed: set[str]) -> Iterator[str]:
    kind = _kind(block)
    if not isinstance(block, dict) or kind not in allowed:
        yield f"{where}: Input tag {kind!r} is not expected here"
        return
    needed, optional = _FIELDS[kind]
    yield from (f"{where}.{kind}.{name}: Field required" for name in sorted(needed - block.keys()))
    extra = block.keys() - needed - optional - {"type"}
    yield from (f"{where}.{kind}.{name}: Extra inputs are not permitted" for name in sorted(extra))
    if block.get("cache_control", {"type": "ephemeral"}) != {"type": "ephemeral"}:
        yield f"{where}.cache_control: Input should be ephemeral"
    match kind:
        case "text" if not str(block.get("text")).replace("\0", "").strip():
            yield f"{where}: text content blocks must contain non-whitespace text"
        case "image":
            yield from _faults_of_image(where, block.get("source"))
        case "tool_use":
            yield from _faults_of_call(where, block)
        case "tool_result":
            yield from _faults_of_result(where, block.get("content", "nothing"))
        case _:
            pass


def _faults_of_image(where: str, source: object) -> Iterator[str]:
    if not isinstance(source, dict) or source.keys() != {"type", "media_type", "data"}:
        yield f"{where}.source: a base64 source is expected"
        return
    if source["type"] != "base64" or source["media_type"] not in _IMAGES:
        yield f"{where}.source.media_type: {source['media_type']!r} is not supported"
    try:
        data = base64.b64decode(source["data"], validate=True)
    except (binascii.Error, ValueError, TypeError):
        data = b""
    if not data:
        yield f"{where}.source.data: image cannot be read"


def _faults_of_call(where: str, block: Json) -> Iterator[str]:
    for name in ("id", "name"):
        if not _NAME.fullmatch(str(block.get(name, ""))):
            yield f"{where}.tool_use.{name}: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if not isinstance(block.get("input"), dict):
        yield f"{where}.tool_use.input: Input should be a valid dictionary"


def _faults_of_result(where: str, content: object) -> Iterator[str]:
    if not content or not isinstance(content, str | list):
        yield f"{where}.tool_result.content: must not be empty"
    elif isinstance(content, list):
        for place, block in enumerate(content):
            yield from _faults_of_block(f"{where}.tool_result.content.{place}", block, {"text", "image"})


def _faults_of_order(messages: list[Json]) -> Iterator[str]:
    """Find what is wrong with the roles, the calls and their results; messages of one role in a row are one turn."""
    turns: list[tuple[str, list[Json]]] = []
    for message in messages:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(blocks)
        else:
            turns.append((message["role"], list(blocks)))
    if turns[0][0] != "user":
        yield 'messages: first message must use the "user" role'
    used: list[str] = []
    for (_, before), (role, blocks) in zip([("", []), *turns], [*turns, ("user", [])], strict=True):
        if role == "user":
            yield from _faults_of_pairs(
                [block["id"] for block in before if _kind(block) == "tool_use"], blocks
            )
        used += [block["id"] for block in blocks if _kind(block) == "tool_use"]
    if len(set(used)) != len(used):
        yield "messages: `tool_use` ids must be unique"


def _faults_of_pairs(calls: list[str], answers: list[Json]) -> Iterator[str]:
    results = [block["tool_use_id"] for block in answers if _kind(block) == "tool_result"]
    first = [block["tool_use_id"] for block in answers[: len(results)] if _kind(block) == "tool_result"]
    if missing := [call for call in calls if call not in first]:
        yield f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}"
    if strange := [result for result in results if result not in calls]:
        yield f"unexpected `tool_use_id` found in `tool_result` blocks: {', '.join(strange)}"
    if len(set(results)) != len(results):
        yield "each tool_use must have a single result. Found multiple `tool_result` blocks with the same id"


def _faults_of_last(message: Json, *, thinks: bool) -> Iterator[str]:
    if message["role"] != "assistant":
        return
    content = message["content"]
    text = content if isinstance(content, str) else content[-1].get("text", "")
    if text != text.rstrip():
        yield "messages: final assistant content cannot end with trailing whitespace"
    if not thinks and any(_kind(block) == "thinking" for block in content):
        yield "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`"


def _breakpoints(part: object) -> int:
    """Count the ends of what is to be cached, wherever they are."""
    if isinstance(part, dict):
        found = int("cache_control" in part)
        return found + sum(_breakpoints(part[name]) for name in part if name not in {"input", "input_schema"})
    return sum(map(_breakpoints, part)) if isinstance(part, list) else 0


def _kind(block: object) -> str:
    return str(block.get("type")) if isinstance(block, dict) else ""
