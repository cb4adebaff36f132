"""The local service refuses what the real one refuses, and finds every difference from its script."""

import asyncio
import json
from typing import Any

import pytest

from aeolus_sandbox.testing.messages_rules import refusal
from aeolus_sandbox.testing.messages_server import MessagesServer, Reply, says, streams

HEADERS = {"x-api-key": "key", "anthropic-version": "2023-06-01"}
CALL = {"type": "tool_use", "id": "a", "name": "t", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "ok"}
TEXT = {"type": "text", "text": "text"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
CACHED = {"type": "text", "text": "text", "cache_control": {"type": "ephemeral"}}
SOURCE = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
IMAGE = {"type": "image", "source": SOURCE}
TOOL = {"name": "t", "description": "Does it.", "input_schema": {"type": "object"}}


def _user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def _model(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def _body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "claude-haiku-4-5", "max_tokens": 9, "messages": list(messages)} | fields


def _refusal(body: object) -> str | None:
    refused = refusal("POST", "/v1/messages", HEADERS, body)
    return None if refused is None else refused[2]


@pytest.mark.parametrize(
    "body",
    [
        _body({"role": "user", "content": "hello"}, system="rules", stream=True, temperature=0.5),
        _body(_user(TEXT, IMAGE), system=[CACHED], tools=[TOOL]),
        _body(_user(TEXT), _model(THOUGHT, TEXT, CALL, TEXT), _user(RESULT, TEXT)),
        _body(
            _user(TEXT), _model(CALL, CALL | {"id": "b"}), _user(RESULT | {"tool_use_id": "b"}), _user(RESULT)
        ),
        _body(_user(TEXT), _model(CALL), _user(RESULT | {"content": [TEXT, IMAGE], "is_error": True})),
        _body(_user(TEXT), max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024}),
        _body(_user(TEXT), _model(TEXT)),
    ],
)
def test_a_request_that_keeps_the_rules_is_taken(body: object) -> None:
    assert _refusal(body) is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ([], "object"),
        (_body(_user(TEXT), colour="red"), "colour: Extra inputs"),
        (_body(_user(TEXT), model=""), "model"),
        (_body(_user(TEXT), max_tokens=0), "max_tokens"),
        (_body(), "at least one message"),
        (_body({"role": "system", "content": "x"}), "role"),
        (_body({"role": "user", "content": "x", "name": "y"}), "name: Extra inputs"),
        (_body({"role": "user", "content": ""}), "non-empty content"),
        (_body(_user()), "non-empty content"),
        (_body(_user({"type": "text", "text": ""})), "non-whitespace"),
        (_body(_user({"type": "text", "text": " \n"})), "non-whitespace"),
        (_body(_user({"type": "text", "text": "\0"})), "non-whitespace"),
        (_body({"role": "user", "content": " "}), "non-whitespace"),
        (_body(_user(TEXT | {"colour": 1})), "colour: Extra inputs"),
        (_body(_user({"type": "text"})), "text: Field required"),
        (_body(_user({"type": "hologram"})), "hologram"),
        (_body(_user(CALL)), "tool_use"),
        (_body(_user(IMAGE | {"source": {"type": "url", "url": "x"}})), "base64"),
        (_body(_user({"type": "image", "source": SOURCE | {"data": "?"}})), "image cannot be read"),
        (
            _body(_user({"type": "image", "source": SOURCE | {"media_type": "image/svg+xml"}})),
            "supported",
        ),
        (_body(_user(TEXT), _model(CALL | {"malformed": "{"}), _user(RESULT)), "malformed: Extra inputs"),
        (_body(_user(TEXT), _model(CALL | {"input": "{}"}), _user(RESULT)), "valid dictionary"),
        (_body(_user(TEXT), _model(CALL | {"id": ""}), _user(RESULT | {"tool_use_id": ""})), "tool_use.id"),
        (_body(_user(TEXT), _model(CALL)), "without `tool_result` blocks"),
        (_body(_user(TEXT), _model(CALL), _user(TEXT)), "without `tool_result` blocks"),
        (_body(_user(TEXT), _model(CALL), _user(TEXT, RESULT)), "without `tool_result` blocks"),
        (_body(_user(TEXT), _model(CALL), _user(RESULT, RESULT)), "multiple `tool_result`"),
        (_body(_user(TEXT), _model(CALL), _user(RESULT), _model(CALL), _user(RESULT)), "unique"),
        (_body(_user(RESULT)), "unexpected `tool_use_id`"),
        (_body(_user(TEXT), _model(CALL), _user(RESULT | {"content": []})), "must not be empty"),
        (
            _body(_user(TEXT), _model(CALL), _user(RESULT | {"content": [TEXT | {"text": ""}]})),
            "non-whitespace",
        ),
        (_body(_model(TEXT)), "first message"),
        (_body(_user(TEXT), _model(TEXT, THOUGHT), _user(TEXT)), "final block"),
        (_body(_user(TEXT), _model(TEXT | {"text": "so "})), "trailing whitespace"),
        (_body(_user(TEXT), _model(THOUGHT, TEXT)), "thinking is disabled"),
        (
            _body(_user(TEXT), _model(THOUGHT | {"cache_control": {"type": "ephemeral"}}, TEXT)),
            "cache_control",
        ),
        (_body(_user(CACHED, CACHED, CACHED, CACHED), system=[CACHED]), "A maximum of 4"),
        (_body(_user(CACHED | {"cache_control": {"type": "for ever"}})), "ephemeral"),
        (_body(_user(TEXT), system=[{"type": "text", "text": ""}]), "system.0"),
        (_body(_user(TEXT), tools=[TOOL, TOOL]), "unique"),
        (_body(_user(TEXT), tools=[TOOL | {"name": "a tool"}]), "pattern"),
        (_body(_user(TEXT), tools=[TOOL | {"input_schema": {"type": "string"}}]), "input_schema"),
        (_body(_user(TEXT), tools=[TOOL | {"colour": 1}]), "colour: Extra inputs"),
        (_body(_user(TEXT), temperature=1.5), "temperature"),
        (_body(_user(TEXT), thinking={"type": "enabled", "budget_tokens": 9}), "budget_tokens"),
        (_body(_user(TEXT), thinking={"type": "enabled", "budget_tokens": 1024}), "max_tokens"),
        (
            _body(
                _user(TEXT),
                max_tokens=2000,
                temperature=0.5,
                thinking={"type": "enabled", "budget_tokens": 1024},
            ),
            "temperature",
        ),
    ],
)
def test_a_request_that_breaks_a_rule_is_refused(body: object, reason: str) -> None:
    refused = _refusal(body)
    assert refused is not None
    assert reason in refused


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/v1/messages", HEADERS, 404),
        ("POST", "/v1/complete", HEADERS, 404),
        ("POST", "/v1/messages", {"anthropic-version": "1"}, 401),
        ("POST", "/v1/messages", {"authorization": "Bearer x"}, 400),
    ],
)
def test_a_request_that_is_none_of_this_service_is_refused(
    method: str, path: str, headers: dict[str, str], status: int
) -> None:
    refused = refusal(method, path, headers, _body(_user(TEXT)))
    assert refused is not None
    assert refused[0] == status


async def _post(server: MessagesServer, body: object) -> bytes:
    host, port = server.url.removeprefix("http://").split(":")
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(host, int(port))
        data = json.dumps(body).encode()
        head = ["POST /v1/messages HTTP/1.1", *(f"{name}: {value}" for name, value in HEADERS.items())]
        writer.write("\r\n".join([*head, f"content-length: {len(data)}", "", ""]).encode() + data)
        status = await reader.readline()
        writer.close()
        await writer.wait_closed()
    return status


GOOD = _body(_user(TEXT))


async def test_a_reply_may_depend_on_the_request() -> None:
    def reply(request: Any) -> Reply:
        return streams("yes") if request.streamed else says("no")

    async with MessagesServer(reply, reply, strict=True) as server:
        assert b"200" in await _post(server, GOOD)
        assert b"200" in await _post(server, GOOD | {"stream": True})


async def test_replies_that_were_not_asked_for_are_an_error() -> None:
    with pytest.raises(AssertionError, match="1 replies"):
        async with MessagesServer(says("one"), says("two"), strict=True) as server:
            await _post(server, GOOD)


async def test_a_request_beyond_the_last_reply_is_refused_and_is_an_error() -> None:
    server = MessagesServer(says("one"), strict=True)
    await server.__aenter__()
    assert b"200" in await _post(server, GOOD)
    assert b"400" in await _post(server, GOOD)
    with pytest.raises(AssertionError, match="more was asked"):
        await server.__aexit__(None)


async def test_a_request_that_is_refused_uses_no_reply_up_and_is_an_error() -> None:
    server = MessagesServer(says("one"), strict=True)
    await server.__aenter__()
    assert b"400" in await _post(server, _body())
    assert b"200" in await _post(server, GOOD)
    with pytest.raises(AssertionError, match="at least one message"):
        await server.__aexit__(None)


async def test_a_server_that_is_not_strict_repeats_its_last_reply() -> None:
    async with MessagesServer(says("one")) as server:
        for _ in range(3):
            assert b"200" in await _post(server, GOOD)
