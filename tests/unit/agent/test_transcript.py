"""Transcripts that a crash has torn: what is sent is always whole, and nothing is run again."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.agent.agent import Agent
from aeolus_sandbox.agent.transcript import INTERRUPTED, repaired
from aeolus_sandbox.model.chat import (
    ChatMessage,
    ContentBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from aeolus_sandbox.model.pairing import check_pairing
from aeolus_sandbox.testing.scripted_model import ScriptedModel
from tests.unit.agent.agent_runs import Recorder, results, told


def use(call: str) -> ToolUseBlock:
    return ToolUseBlock(id=call, name="deploy", input={})


def result(call: str, text: str = "stored") -> ToolResultBlock:
    return ToolResultBlock(tool_use_id=call, content=(TextBlock(text=text),))


def user(*blocks: ContentBlock) -> ChatMessage:
    return ChatMessage(role="user", content=blocks)


def model(*blocks: ContentBlock) -> ChatMessage:
    return ChatMessage(role="assistant", content=blocks)


BEGIN = ChatMessage.user("Deploy both.")
NEXT = ChatMessage.user("And now?")
TORN = model(TextBlock(text="I will."), use("A"), use("B"))


async def asked(messages: Sequence[ChatMessage]) -> ScriptedModel:
    """Go on from messages, with a tool that must not run, and return the model that was asked."""

    async def deploy() -> None:
        raise AssertionError

    async with ScriptedModel(["Done."]) as scripted:
        await Agent(model=scripted, tools=[deploy]).run_streaming_with_messages(messages, Recorder())
    return scripted


async def test_a_call_without_a_result_is_answered_as_interrupted_and_not_run_again() -> None:
    scripted = await asked([BEGIN, TORN, user(result("A"), *NEXT.content)])
    first, second = results(scripted)
    assert (first.tool_use_id, second.tool_use_id) == ("A", "B")
    assert (first.is_error, second.is_error) == (False, True)
    assert told(scripted) == ["stored", INTERRUPTED]
    assert scripted.requests[0].messages[-1].content[-1] == TextBlock(text="And now?")


async def test_results_come_in_the_order_of_the_calls_and_before_all_else() -> None:
    scripted = await asked([BEGIN, TORN, user(TextBlock(text="So?"), result("B"), result("A"))])
    last = scripted.requests[0].messages[-1]
    assert [block.type for block in last.content] == ["tool_result", "tool_result", "text"]
    assert [block.tool_use_id for block in results(scripted)] == ["A", "B"]


async def test_a_prompt_right_after_torn_calls_stands_behind_their_results() -> None:
    scripted = await asked([BEGIN, TORN, NEXT])
    assert told(scripted) == [INTERRUPTED, INTERRUPTED]
    assert scripted.requests[0].messages[-1].text == "And now?"


async def test_a_result_alone_and_then_a_prompt_is_whole() -> None:
    scripted = await asked([BEGIN, TORN, user(result("A")), NEXT])
    assert told(scripted, 0) == []
    before = scripted.requests[0].messages[-2]
    assert [block.is_error for block in before.content if isinstance(block, ToolResultBlock)] == [False, True]


async def test_text_after_a_call_stays() -> None:
    torn = model(use("A"), TextBlock(text="and then I look"))
    scripted = await asked([BEGIN, torn, NEXT])
    assert scripted.requests[0].messages[1] == torn
    assert told(scripted) == [INTERRUPTED]


async def test_of_two_results_for_one_call_the_first_counts() -> None:
    scripted = await asked(
        [BEGIN, model(use("A")), user(result("A", "one"), result("A", "two"), *NEXT.content)]
    )
    assert told(scripted) == ["one"]


async def test_results_of_no_call_are_left_out() -> None:
    scripted = await asked([user(*BEGIN.content, result("Z")), model(TextBlock(text="Hm.")), NEXT])
    assert scripted.requests[0].messages[0] == BEGIN


def test_a_whole_transcript_stays_as_it_is() -> None:
    whole = [BEGIN, TORN, user(result("A"), result("B")), model(TextBlock(text="Done."))]
    assert repaired(whole) == whole


blocks = st.one_of(
    st.just(TextBlock(text="text")),
    st.just(ThinkingBlock(thinking="hm", signature="s")),
    st.builds(result, st.sampled_from("ABCDEF")),
)


@st.composite
def transcripts(draw: st.DrawFn) -> list[ChatMessage]:
    """Return what may be left of a conversation, whatever happened to it."""
    messages, calls = [BEGIN], iter("ABCDEF")
    for role in draw(st.lists(st.sampled_from(["user", "assistant"]), max_size=6)):
        content: list[ContentBlock] = draw(st.lists(blocks, max_size=3))
        if role == "assistant":
            content = [block for block in content if not isinstance(block, ToolResultBlock)]
            content += [
                use(call)
                for call, wanted in zip(calls, draw(st.lists(st.just(1), max_size=2)), strict=False)
                if wanted
            ]
        messages.append(ChatMessage(role="user" if role == "user" else "assistant", content=tuple(content)))
    return messages


@given(transcripts())
def test_every_transcript_can_be_sent_once_it_is_repaired(messages: list[ChatMessage]) -> None:
    whole = repaired(messages)
    check_pairing(whole)
    assert repaired(whole) == whole
    spoken = [
        block for message in messages for block in message.content if not isinstance(block, ToolResultBlock)
    ]
    assert spoken == [
        block for message in whole for block in message.content if not isinstance(block, ToolResultBlock)
    ]
