"""The scripted model gives what a test says, and finds every difference from it."""

import asyncio
from collections.abc import Sequence

import pytest

from aeolus_sandbox.errors import ModelUnavailable
from aeolus_sandbox.events import AggregatedUsage
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
    ToolResultBlock,
    ToolUseBlock,
)
from aeolus_sandbox.testing.scripted_model import Call, ScriptedModel, Step, Thought, Turn

HELLO = [ChatMessage.user("hello")]


async def _ask(
    model: ChatModel, messages: Sequence[ChatMessage] = HELLO
) -> list[TextDelta | ThinkingDelta | Answer]:
    return [piece async for piece in model.stream(ChatRequest(messages=messages))]


async def _answer(step: Step, messages: Sequence[ChatMessage] = HELLO) -> Answer:
    async with ScriptedModel([step]) as model:
        last = (await _ask(model, messages))[-1]
    assert isinstance(last, Answer)
    return last


async def test_every_form_of_a_step_is_an_answer() -> None:
    steps: list[Step] = [
        "one",
        ["t", "wo"],
        Turn("three"),
        Call("terminal"),
        lambda request: f"asked for {len(request.messages)}",
        lambda request: [Thought("hm"), "five"],
    ]
    async with ScriptedModel(steps) as model:
        texts = [(await _ask(model))[-1] for _ in steps]
    assert [answer.message.text for answer in texts if isinstance(answer, Answer)] == [
        "one",
        "two",
        "three",
        "",
        "asked for 1",
        "five",
    ]


async def test_an_answer_has_its_pieces_its_blocks_its_reason_and_its_usage() -> None:
    usage = AggregatedUsage(requests=1, output_tokens=99)
    sealed = RedactedThinkingBlock(data="sealed")
    turn = Turn(
        Thought("hm"),
        sealed,
        "Let me ",
        "look.",
        Call("a", {"x": 1}),
        Call("b", id="mine", malformed="{"),
        usage=usage,
    )
    async with ScriptedModel([turn]) as model:
        assert await _ask(model) == [
            ThinkingDelta("hm"),
            TextDelta("Let me "),
            TextDelta("look."),
            Answer(
                ChatMessage(
                    role="assistant",
                    content=(
                        ThinkingBlock(thinking="hm", signature="signed"),
                        sealed,
                        TextBlock(text="Let me look."),
                        ToolUseBlock(id="toolu_000001", name="a", input={"x": 1}),
                        ToolUseBlock(id="mine", name="b", input={}, malformed="{"),
                    ),
                ),
                "tool_use",
                usage,
            ),
        ]
    assert (await _answer("text")).stop_reason == "end_turn"
    assert (await _answer(Turn("text", stop_reason="max_tokens"))).stop_reason == "max_tokens"
    assert (await _answer(" ")).message.content == ()


async def test_no_two_calls_of_a_conversation_have_the_same_id() -> None:
    first = await _answer([Call("a"), Call("a")])
    results = tuple(ToolResultBlock(tool_use_id=call.id, content=()) for call in first.message.tool_uses)
    then = await _answer(Call("a"), [*HELLO, first.message, ChatMessage(role="user", content=results)])
    assert len({call.id for answer in (first, then) for call in answer.message.tool_uses}) == 3


async def test_an_error_comes_where_the_step_says() -> None:
    async with ScriptedModel(
        [["Let me", ModelUnavailable("broke off")], ModelUnavailable("overloaded")]
    ) as model:
        stream = model.stream(ChatRequest(messages=HELLO))
        assert await anext(stream) == TextDelta("Let me")
        with pytest.raises(ModelUnavailable, match="broke off"):
            await anext(stream)
        with pytest.raises(ModelUnavailable, match="overloaded"):
            await _ask(model)
        assert model.abandoned == 0


async def test_an_answer_waits_for_an_event_and_counts_as_abandoned_when_it_is_cancelled() -> None:
    go_on, never = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(20), ScriptedModel([["a", go_on, "b"], never]) as model:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(_ask(model))
            await model.wait_for_requests(1)
            assert not asking.done()
            go_on.set()
        (last,) = [piece for piece in asking.result() if isinstance(piece, Answer)]
        assert last.message.content == (TextBlock(text="ab"),)
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(_ask(model))
            await model.wait_for_requests(2)
            asking.cancel()
        assert model.abandoned == 1


async def test_requests_are_kept_as_they_were() -> None:
    messages = list(HELLO)
    async with ScriptedModel(["one"], name="scripted/other") as model:
        await _ask(model, messages)
        messages.append(ChatMessage.assistant("one"))
        assert model.requests[0].messages == tuple(HELLO)
        assert model.name == "scripted/other"


async def test_steps_that_were_not_asked_for_are_an_error() -> None:
    with pytest.raises(AssertionError, match="2 steps have not been asked for, the first is 'two'"):
        async with ScriptedModel(["one", "two", "three"]) as model:
            await _ask(model)


async def test_a_request_beyond_the_last_step_is_an_error_also_where_it_was_caught() -> None:
    model = ScriptedModel(["one"])
    await _ask(model)
    with pytest.raises(AssertionError, match="one more than there are steps"):
        await _ask(model)
    with pytest.raises(AssertionError, match="one more than there are steps"):
        model.assert_consumed()


async def test_a_conversation_with_an_unanswered_call_is_an_error_also_where_it_was_caught() -> None:
    call = ChatMessage(role="assistant", content=(ToolUseBlock(id="a", name="t", input={}),))
    model = ScriptedModel([])
    with pytest.raises(AssertionError, match=r"request 1: .* 'a' has no result"):
        await _ask(model, [*HELLO, call])
    with pytest.raises(AssertionError, match="no result"):
        model.assert_consumed()


async def test_the_error_of_the_test_itself_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        async with ScriptedModel(["never asked for"]):
            raise ZeroDivisionError
