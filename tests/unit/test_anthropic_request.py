"""What the service is sent: whatever a conversation holds, it is a request that the service takes."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.errors import ConfigurationError, ModelError
from aeolus_sandbox.model.chat import (
    ChatMessage,
    ChatRequest,
    ContentBlock,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
)
from aeolus_sandbox.testing.messages_server import (
    MessagesServer,
    streams,
)
from tests.unit.chat_service import ASKED, NAME, PIXEL, TOOL, Service, open_models, read, serving


async def _sent(request: ChatRequest) -> dict[str, Any]:
    """Return what is sent for a request, which the server has found right."""
    async with MessagesServer(streams("fine"), strict=True) as server, open_models(server) as models:
        await read(models.chat_model(NAME), request)
        return server.requests[0].body


async def test_a_request_says_all_that_is_asked_and_marks_what_is_to_be_cached() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    other = ToolSpec(name="read_log", description=" ", input_schema={"type": "object"})
    request = ChatRequest(
        messages=[ChatMessage.user("one"), ChatMessage.assistant("two"), ChatMessage.user("three")],
        system="Be brief.",
        tools=[other, TOOL],
        max_tokens=77,
        temperature=0.5,
    )
    assert await _sent(request) == {
        "model": "claude-haiku-4-5",
        "max_tokens": 77,
        "temperature": 0.5,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief."} | cached],
        "tools": [
            {"name": "read_log", "input_schema": {"type": "object"}},
            {"name": "terminal", "description": "Runs a command.", "input_schema": {"type": "object"}}
            | cached,
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "one"} | cached]},
            {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
            {"role": "user", "content": [{"type": "text", "text": "three"} | cached]},
        ],
    }


async def test_with_thinking_its_budget_is_sent_and_no_temperature() -> None:
    asked = ChatRequest(messages=ASKED.messages, temperature=0.2, max_tokens=2000, thinking_tokens=1024)
    sent = await _sent(asked)
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert "temperature" not in sent


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        ({"max_tokens": 1024, "thinking_tokens": 1024}, "more than"),
        ({"max_tokens": 2000, "thinking_tokens": 1023}, "at least 1024"),
        ({"max_tokens": 0}, "at least one"),
    ],
)
async def test_numbers_of_tokens_that_do_not_go_together_are_found_before_anything_is_sent(
    tokens: dict[str, int], reason: str
) -> None:
    async with MessagesServer() as server, open_models(server) as models:
        with pytest.raises(ConfigurationError, match=reason):
            await read(models.chat_model(NAME), ChatRequest(messages=ASKED.messages, **tokens))  # type: ignore[arg-type]
        assert server.requests == []


async def test_calls_results_and_thinking_are_sent_as_they_were() -> None:
    history = [
        ChatMessage.user("Plot it."),
        ChatMessage(
            role="assistant",
            content=(
                ThinkingBlock(thinking=" ", signature="abc"),
                RedactedThinkingBlock(data="sealed"),
                TextBlock(text=" "),
                ToolUseBlock(id="a", name="terminal", input={"x": [1]}),
                ToolUseBlock(id="b", name="terminal", input={}, malformed='{"x'),
            ),
        ),
        ChatMessage(
            role="user",
            content=(
                ToolResultBlock(
                    tool_use_id="b",
                    content=(TextBlock(text="plot"), ImageBlock(media_type="image/png", data=PIXEL)),
                ),
                ToolResultBlock(tool_use_id="a", content=(TextBlock(text="no"),), is_error=True),
            ),
        ),
    ]
    sent = (await _sent(ChatRequest(messages=history)))["messages"]
    assert sent[1]["content"] == [
        {"type": "thinking", "thinking": " ", "signature": "abc"},
        {"type": "redacted_thinking", "data": "sealed"},
        {"type": "tool_use", "id": "a", "name": "terminal", "input": {"x": [1]}},
        {"type": "tool_use", "id": "b", "name": "terminal", "input": {}},
    ]
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    assert sent[2]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "b",
            "content": [{"type": "text", "text": "plot"}, {"type": "image", "source": source}],
        },
        {
            "type": "tool_result",
            "tool_use_id": "a",
            "content": [{"type": "text", "text": "no"}],
            "is_error": True,
            "cache_control": {"type": "ephemeral"},
        },
    ]


_blank = st.sampled_from(["", " ", "\n", "\0", "\u2003"])
_texts = st.builds(TextBlock, text=st.one_of(_blank, st.text(max_size=5), st.just("\ud83d \udcc8")))
_images = st.builds(
    ImageBlock,
    media_type=st.sampled_from(["image/png", "image/svg+xml"]),
    data=st.sampled_from([PIXEL, ""]),
)
_flags: st.SearchStrategy[Any] = st.booleans()
_parts = st.lists(st.one_of(_texts, _images), max_size=2)
_said = st.one_of(
    _texts,
    st.builds(ThinkingBlock, thinking=st.text("ab ", max_size=3), signature=st.just("abc")),
    st.builds(RedactedThinkingBlock, data=st.just("sealed")),
    st.builds(ToolUseBlock, id=st.just(""), name=st.just("terminal"), input=st.just({"x": "é"})),
)


@st.composite
def _conversations(draw: st.DrawFn) -> list[ChatMessage]:
    """Draw conversations as an agent builds them, with anything empty that can be empty."""
    messages = [
        ChatMessage(role="user", content=tuple(draw(st.lists(st.one_of(_texts, _images), max_size=3))))
    ]
    number = 0
    for said in draw(st.lists(st.lists(_said, max_size=4), max_size=5)):
        blocks: list[ContentBlock] = []
        for block in said:
            number += 1
            blocks.append(
                block.model_copy(update={"id": f"c{number}"}) if block.type == "tool_use" else block
            )
        messages.append(ChatMessage(role="assistant", content=tuple(blocks)))
        calls = messages[-1].tool_uses
        if calls or draw(_flags):
            results = [ToolResultBlock(tool_use_id=call.id, content=tuple(draw(_parts))) for call in calls]
            messages.append(ChatMessage(role="user", content=(*results, *draw(_parts))))
    return messages


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module", name="service")
def _service(loop: asyncio.Runner) -> Iterator[Service]:
    with serving(loop) as opened:
        yield opened


@given(_conversations(), st.booleans(), st.text(" a", max_size=2))
@settings(max_examples=60, deadline=None)
def test_the_service_takes_every_conversation_whatever_is_empty_in_it(
    loop: asyncio.Runner, service: Service, messages: list[ChatMessage], thinks: bool, system: str
) -> None:
    server, models = service
    server.replies = [streams("fine")]
    thinking = 1024 if thinks else None
    request = ChatRequest(messages=messages, system=system, tools=[TOOL], thinking_tokens=thinking)
    pieces = loop.run(read(models.chat_model(NAME), request))
    assert pieces[0] == TextDelta("fine")
    assert server.refusals == []


CALLS = (ToolUseBlock(id="a", name="t", input={}), ToolUseBlock(id="b", name="t", input={}))
RESULT_A, RESULT_B = (ToolResultBlock(tool_use_id=id_, content=()) for id_ in "ab")
TEXT = TextBlock(text="text")


@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        ([], "begin with a message of the user"),
        ([("assistant", (TEXT,))], "begin with a message of the user"),
        ([("user", (TEXT,)), ("assistant", CALLS)], "'a' has no result"),
        ([("user", (TEXT,)), ("assistant", CALLS), ("user", (RESULT_A,))], "'b' has 0 results"),
        (
            [("user", (TEXT,)), ("assistant", CALLS), ("user", (RESULT_A, RESULT_B, RESULT_A))],
            "'a' has 2 results",
        ),
        (
            [("user", (TEXT,)), ("assistant", CALLS[:1]), ("user", (RESULT_A, RESULT_B))],
            "'b' belongs to no call",
        ),
        ([("user", (TEXT,)), ("assistant", CALLS[:1]), ("user", (TEXT, RESULT_A))], "before the results"),
        ([("user", (RESULT_A,))], "belongs to no call"),
        ([("user", CALLS)], "user has a call"),
        ([("user", (TEXT,)), ("assistant", (RESULT_A,))], "model has a result"),
        ([("user", (TEXT,)), ("assistant", CALLS[:1] * 2), ("user", (RESULT_A,))], "same id"),
    ],
)
async def test_calls_and_results_that_do_not_belong_together_are_found_before_anything_is_sent(
    blocks: list[tuple[Any, tuple[ContentBlock, ...]]], reason: str
) -> None:
    messages = [ChatMessage(role=role, content=content) for role, content in blocks]
    async with MessagesServer() as server, open_models(server) as models:
        with pytest.raises(ModelError, match=reason) as raised:
            await read(models.chat_model(NAME), ChatRequest(messages=messages))
        assert not raised.value.retryable
        assert server.requests == []


async def test_results_may_come_in_several_messages_of_the_user() -> None:
    messages = [
        ChatMessage.user("go"),
        ChatMessage(role="assistant", content=(CALLS[0], TEXT, CALLS[1])),
        ChatMessage(role="user", content=(RESULT_B,)),
        ChatMessage(role="user", content=(RESULT_A, TEXT)),
    ]
    assert len((await _sent(ChatRequest(messages=messages)))["messages"]) == 4
