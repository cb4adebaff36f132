"""Conversations with the real client against a local service: what comes back."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from pydantic import SecretStr

from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.events import AggregatedUsage
from aeolus_sandbox.model.anthropic import AnthropicModels
from aeolus_sandbox.model.chat import (
    Answer,
    ChatMessage,
    ChatModel,
    ChatRequest,
    RedactedThinkingBlock,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
)
from aeolus_sandbox.testing.messages_server import (
    PING,
    Item,
    MessagesServer,
    raw_event,
    redacted_block,
    streams,
    text_block,
    thinking_block,
    tool_block,
)
from tests.unit.chat_service import ASKED, KEY, NAME, Pieces, open_models, read


async def _pieces(*items: Item, request: ChatRequest = ASKED, **options: Any) -> Pieces:
    async with (
        MessagesServer(streams(*items, **options), strict=True) as server,
        open_models(server) as models,
    ):
        return await read(models.chat_model(NAME), request)


async def _answer(*items: Item, **options: Any) -> Answer:
    last = (await _pieces(*items, **options))[-1]
    assert isinstance(last, Answer)
    return last


# What comes back.


async def test_text_and_thinking_are_shown_as_they_come_and_the_whole_answer_is_last() -> None:
    pieces = await _pieces(
        thinking_block("Let me", " think.", signature="abc"),
        redacted_block("sealed"),
        text_block("One ", "two."),
        tool_block("terminal", {"command": "ls"}, id="toolu_1"),
        usage={"output_tokens": 7, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2},
    )
    assert pieces == [
        ThinkingDelta("Let me"),
        ThinkingDelta(" think."),
        TextDelta("One "),
        TextDelta("two."),
        Answer(
            ChatMessage(
                role="assistant",
                content=(
                    ThinkingBlock(thinking="Let me think.", signature="abc"),
                    RedactedThinkingBlock(data="sealed"),
                    TextBlock(text="One two."),
                    ToolUseBlock(id="toolu_1", name="terminal", input={"command": "ls"}),
                ),
            ),
            "tool_use",
            AggregatedUsage(
                requests=1, input_tokens=10, output_tokens=7, cache_read_tokens=3, cache_written_tokens=2
            ),
        ),
    ]


async def test_a_piece_is_shown_before_the_next_one_is_sent() -> None:
    go_on = asyncio.Event()
    reply = streams(text_block("first"), go_on, text_block(" second"))
    async with (
        MessagesServer(reply, strict=True) as server,
        open_models(server) as models,
        aclosing(models.chat_model(NAME).stream(ASKED)) as stream,
    ):
        assert await anext(stream) == TextDelta("first")
        go_on.set()
        assert await anext(stream) == TextDelta(" second")
        assert isinstance(await anext(stream), Answer)


async def test_the_input_of_a_call_is_parsed_when_all_its_fragments_have_come() -> None:
    fragments = ['{"comm', 'and":"printf caf', "\\u00", 'e9"}']
    answer = await _answer(tool_block("terminal", fragments=fragments))
    (call,) = answer.message.tool_uses
    assert (call.input, call.malformed) == ({"command": "printf café"}, None)


@pytest.mark.parametrize("fragments", [[""], [], ["", " "], ["{}"]], ids=repr)
async def test_a_call_without_arguments_has_an_empty_input(fragments: list[str]) -> None:
    (call,) = (await _answer(tool_block("terminal", fragments=fragments))).message.tool_uses
    assert (call.input, call.malformed) == ({}, None)


@pytest.mark.parametrize(
    "text",
    [
        '{"command": "a\n"}',
        '{"command": "a',
        "[1]",
        "7",
        "null",
        '{"a": NaN}',
        '{"a": 1e400}',
        '{"a": "\\ud83d"}',
        "[" * 100_000,
        '{"a": 1} {}',
        f'{{"a": {"1" * 5000}}}',
    ],
    ids=lambda text: text[:20],
)
async def test_an_input_that_is_no_json_object_is_kept_as_the_model_wrote_it(text: str) -> None:
    answer = await _answer("Look:", tool_block("terminal", fragments=[text[:9], text[9:]]), "and")
    (call,) = answer.message.tool_uses
    assert (call.input, call.malformed) == ({}, text)
    assert answer.message.text == "Look:and"


async def test_an_input_that_is_announced_whole_is_taken() -> None:
    start = {"type": "tool_use", "id": "toolu_9", "name": "terminal", "input": {"command": "ls"}}
    announced = raw_event(
        "content_block_start", {"type": "content_block_start", "index": 0, "content_block": start}
    )
    (call,) = (await _answer(announced)).message.tool_uses
    assert call.input == {"command": "ls"}


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\0", " \0 "], ids=repr)
async def test_a_blank_text_is_left_out_of_the_answer(blank: str) -> None:
    answer = await _answer(text_block(blank), tool_block("terminal", {}))
    assert [block.type for block in answer.message.content] == ["tool_use"]


async def test_half_a_character_is_replaced() -> None:
    broken = raw_event(
        "content_block_delta",
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}},
    ).replace(b"half", rb"a\ud83d!")
    start = raw_event(
        "content_block_start",
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    )
    assert (await _answer(start, broken)).message.text == "a\ufffd!"


async def test_pings_and_what_is_not_known_are_skipped() -> None:
    unknown_block = {"type": "hologram", "text": "?"}
    strange = [
        raw_event("shimmer", {"type": "shimmer", "index": 0}),
        raw_event("content_block_delta", {"type": "content_block_delta", "index": 77, "delta": {}}),
        raw_event(
            "content_block_start",
            {"type": "content_block_start", "index": 9, "content_block": unknown_block},
        ),
        raw_event(
            "content_block_delta",
            {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "?"}},
        ),
        raw_event("content_block_delta", {"type": "content_block_delta", "index": 9, "delta": None}),
        raw_event("content_block_delta", [1, 2]),
        raw_event("message_delta", {"type": "message_delta", "delta": 7, "usage": {"output_tokens": "x"}}),
        b": a comment\n\n",
        b"data: without a name\n\n",
    ]
    pieces = await _pieces(PING, "One ", *strange, PING, "two")
    assert pieces[:-1] == [TextDelta("One "), TextDelta("two")]
    assert isinstance(pieces[-1], Answer)
    assert [block.type for block in pieces[-1].message.content] == ["text", "text"]


async def test_every_reason_to_stop_is_passed_on() -> None:
    for reason in ("max_tokens", "stop_sequence", "pause_turn", "refusal", "something_new"):
        assert (await _answer("text", stop_reason=reason)).stop_reason == reason


async def test_an_answer_without_anything_in_it_is_an_empty_message() -> None:
    answer = await _answer()
    assert (answer.message.content, answer.stop_reason) == ((), "end_turn")


# The door.


def test_a_model_for_conversations_has_the_name_that_it_was_asked_for() -> None:
    model: ChatModel = AnthropicModels(api_key=SecretStr(KEY)).chat_model(NAME)
    assert model.name == NAME
    assert KEY not in repr(vars(model))


def test_without_a_key_there_is_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
        AnthropicModels().chat_model(NAME)


async def test_one_connection_serves_one_answer_after_the_other() -> None:
    async with MessagesServer(streams("one")) as server, open_models(server) as models:
        for _ in range(3):
            await read(models.chat_model(NAME))
        assert len(server._connections) == 1
        assert len(server.requests) == 3
