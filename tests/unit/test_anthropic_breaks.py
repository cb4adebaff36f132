"""Answers that break off, are refused, or are ended from outside, with the real client against a local service."""

import asyncio
import logging
import traceback
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from aeolus_sandbox.errors import ModelError, ModelUnavailable
from aeolus_sandbox.model.anthropic import AnthropicModels
from aeolus_sandbox.model.chat import Answer, TextDelta
from aeolus_sandbox.testing.messages_server import (
    CUT_BEFORE,
    NEVER,
    PING,
    Ending,
    Item,
    MessagesServer,
    Reply,
    error_event,
    fails,
    raw_event,
    says,
    streams,
    text_block,
    tool_block,
)
from tests.unit.chat_service import ASKED, KEY, NAME, Pieces, open_models, read


async def _failure(reply: Reply, *, silence_s: float = 60.0) -> tuple[Pieces, ModelError]:
    shown: Pieces = []
    async with MessagesServer(reply, strict=True) as server, open_models(server) as models:
        try:
            async for piece in models.chat_model(NAME, silence_s=silence_s).stream(ASKED):
                shown.append(piece)
        except ModelError as error:
            return shown, error
    pytest.fail(f"there was no error, but {shown}")


@pytest.mark.parametrize("kind", ["overloaded_error", "rate_limit_error", "api_error", "timeout_error"])
@pytest.mark.parametrize("begun", [True, False])
async def test_an_overload_in_the_middle_of_a_stream_may_be_asked_again(kind: str, begun: bool) -> None:
    shown, error = await _failure(streams(*["Let me"][:begun], error_event(kind, "try later")))
    assert shown == [TextDelta("Let me")][:begun]
    assert isinstance(error, ModelUnavailable)
    assert error.retryable
    assert "try later" in str(error)


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("invalid_request_error", "malformed"),
        ("authentication_error", "key"),
        ("permission_error", "permissions"),
        ("request_too_large", "too large"),
        ("something_new", "malformed"),
    ],
)
async def test_a_refusal_in_the_middle_of_a_stream_is_not_asked_again(kind: str, advice: str) -> None:
    shown, error = await _failure(streams("Let me", error_event(kind, "so not")))
    assert shown == [TextDelta("Let me")]
    assert type(error) is ModelError
    assert not error.retryable
    assert "so not" in str(error)
    assert advice in str(error)


@pytest.mark.parametrize(
    "data", [b"no json", b"[]", b'{"type": "error"}', b'{"error": {"type": 7}}', b"null"]
)
async def test_an_error_that_says_nothing_may_be_asked_again(data: bytes) -> None:
    _, error = await _failure(streams(b"event: error\ndata: " + data + b"\n\n"))
    assert isinstance(error, ModelUnavailable)


@pytest.mark.parametrize("ending", [Ending.CUT, Ending.END])
@pytest.mark.parametrize(
    "item", [text_block("Let me"), tool_block("t", fragments=['{"a'])], ids=["text", "call"]
)
async def test_a_stream_that_ends_before_the_answer_is_whole_is_broken_off(
    item: Item, ending: Ending
) -> None:
    shown, error = await _failure(streams(item, ending))
    assert not any(isinstance(piece, Answer) for piece in shown)
    assert isinstance(error, ModelUnavailable)


@pytest.mark.parametrize("items", [(b"event: message_delta\ndata: {nonsense\n\n",), (b"data: \xff\n\n",)])
async def test_a_damaged_stream_is_broken_off(items: tuple[bytes]) -> None:
    shown, error = await _failure(streams("Let me", *items))
    assert shown == [TextDelta("Let me")]
    assert isinstance(error, ModelUnavailable)
    assert "broke off" in str(error)


@pytest.mark.parametrize(
    "reply", [streams("Let me", Ending.SILENCE), streams(Ending.SILENCE), NEVER], ids=["text", "start", "all"]
)
async def test_a_silence_that_is_too_long_ends_the_answer(reply: Reply) -> None:
    _, error = await _failure(reply, silence_s=0.3)
    assert isinstance(error, ModelUnavailable)
    assert "in time" in str(error)


async def test_the_time_limit_is_one_between_events_and_pings_are_events() -> None:
    """The whole takes longer than any silence may, which is several times as long as each of these."""
    silence_s, steps = 3.0, 4
    waits = [asyncio.Event() for _ in range(steps)]
    items: list[Item] = [
        item for number, wait in enumerate(waits) for item in (wait, (PING, "word")[number % 2])
    ]
    async with MessagesServer(streams(*items), strict=True) as server, open_models(server) as models:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read(models.chat_model(NAME, silence_s=silence_s)))
            for wait in waits:
                await asyncio.sleep(silence_s / 3)
                wait.set()
        assert len([piece for piece in reading.result() if isinstance(piece, TextDelta)]) == steps / 2


@pytest.mark.parametrize(
    "reply",
    [fails(429, retry_after="0"), fails(529), fails(500), fails(408), CUT_BEFORE],
    ids=repr,
)
async def test_a_request_that_is_not_taken_for_now_may_be_asked_again(reply: Reply) -> None:
    shown, error = await _failure(reply)
    assert shown == []
    assert isinstance(error, ModelUnavailable)


async def test_the_time_that_the_service_asks_for_is_kept() -> None:
    _, error = await _failure(fails(429, "rate_limit_error", "slow down", retry_after="17"))
    assert error.retry_after_s == 17
    _, error = await _failure(streams("Let me", error_event("rate_limit_error"), retry_after="9"))
    assert error.retry_after_s == 9


async def test_a_service_that_is_not_there_is_unavailable() -> None:
    async with MessagesServer() as server:
        url = server.url
    models = AnthropicModels(base_url=url, api_key=SecretStr(KEY))
    async with asyncio.timeout(60):
        with pytest.raises(ModelUnavailable, match="network"):
            await read(models.chat_model(NAME))
        await models.aclose()


@pytest.mark.parametrize(
    "reply",
    [says("no stream"), Reply(200, b"<html>welcome", {"content-type": "text/html"}), Reply(200, b"")],
    ids=["whole", "page", "nothing"],
)
async def test_what_does_not_stream_is_not_the_service(reply: Reply) -> None:
    _, error = await _failure(reply)
    assert type(error) is ModelError
    assert "base URL" in str(error)


async def test_a_call_that_cannot_be_answered_is_an_error() -> None:
    start = {"type": "tool_use", "id": 7, "name": "terminal", "input": {}}
    event = {"type": "content_block_start", "index": 0, "content_block": start}
    _, error = await _failure(streams(raw_event("content_block_start", event)))
    assert "without an id" in str(error)


@pytest.mark.parametrize(
    "reply",
    [
        fails(401, "authentication_error", f"the key {KEY!r} is not known"),
        fails(529, "overloaded_error", f"not for {KEY}"),
        streams("Let me", error_event("invalid_request_error", f"what is {KEY}?")),
        streams("Let me", error_event("overloaded_error", f"what is {KEY}?")),
        streams("Let me", Ending.CUT),
        CUT_BEFORE,
    ],
    ids=["401", "529", "refused", "overloaded", "cut", "cut before"],
)
async def test_no_error_holds_the_key(reply: Reply, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    _, error = await _failure(reply)
    logging.getLogger().warning("failed: %r", error, exc_info=error)
    assert error.__cause__ is not None
    assert KEY not in "".join(traceback.format_exception(error)) + caplog.text
    assert KEY not in "".join(_held(error))


def _held(error: BaseException) -> Iterator[str]:
    """Yield what programs that collect errors find in them."""
    chained: BaseException | None = error
    while chained is not None:
        yield repr(vars(chained)) + repr(chained.args)
        for name in ("request", "_request", "response"):
            held = vars(chained).get(name)
            yield repr(held and (dict(held.headers), held.content))
        chained = chained.__cause__ or chained.__context__


# Ending it from outside.


async def test_closing_the_stream_closes_the_connection_at_once() -> None:
    async with (
        MessagesServer(streams("Let me", Ending.SILENCE), streams("fine"), strict=True) as server,
        open_models(server) as models,
    ):
        stream = models.chat_model(NAME).stream(ASKED)
        assert await anext(stream) == TextDelta("Let me")
        await stream.aclose()
        async with asyncio.timeout(20):
            await server.hung_up.wait()
        assert isinstance((await read(models.chat_model(NAME)))[-1], Answer)


@pytest.mark.parametrize(
    "reply", [streams("Let me", Ending.SILENCE), NEVER], ids=["in the stream", "before it"]
)
async def test_cancelling_the_reader_closes_the_connection_at_once(reply: Reply) -> None:
    async with MessagesServer(reply, strict=True) as server, open_models(server) as models:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read(models.chat_model(NAME)))
            await server.asked.wait()
            reading.cancel()
        assert reading.cancelled()
        async with asyncio.timeout(20):
            await server.hung_up.wait()


async def test_a_stream_that_does_not_end_after_its_answer_does_not_hold_it_back() -> None:
    stopped = raw_event("message_stop", {"type": "message_stop"})
    async with (
        MessagesServer(streams("text", stopped, Ending.SILENCE), strict=True) as server,
        open_models(server) as models,
    ):
        assert isinstance((await read(models.chat_model(NAME)))[-1], Answer)
