"""A run of an agent: its turns, the order of its events, and what ends it."""

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.agent import answers
from aeolus_sandbox.agent.agent import Agent
from aeolus_sandbox.agent.session import GO_ON
from aeolus_sandbox.consumers.callback import CallbackConsumer
from aeolus_sandbox.consumers.channel import ChannelConsumer
from aeolus_sandbox.consumers.multi import MultiConsumer
from aeolus_sandbox.errors import (
    ConfigurationError,
    ModelError,
    ModelUnavailable,
    StorageFull,
    TurnLimitReached,
)
from aeolus_sandbox.events import (
    Content,
    Error,
    ModelRetried,
    Reasoning,
    SessionStarted,
    StreamEvent,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    TurnCompleted,
    UsageUpdate,
)
from aeolus_sandbox.model.chat import ChatMessage
from aeolus_sandbox.model.pairing import check_pairing
from aeolus_sandbox.testing.scripted_model import Call, ScriptedModel, Step, Thought, Turn
from tests.unit.agent.agent_runs import LIMIT_S, Recorder, Says, check_order, results, run, told

SECRET = "sk-ant-api03-" + "Qz7" * 15


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_FIRST_WAIT_S", 0.0)


async def fails_to_run(steps: list[Step], **more: Any) -> tuple[Recorder, BaseException]:
    """Run an agent that must not come to its end."""
    recorder = Recorder()
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller looks at it
            await Agent(model=ScriptedModel(steps), **more).run_streaming("Begin.", recorder)
    check_order(recorder.events)
    return recorder, caught.value


# Turns.


async def test_a_run_says_what_it_does_in_order() -> None:
    recorder, _ = await run(
        [
            [Thought("Hm."), "Let me look.", Call("says", {"lines": ["x\n"]}, id="c1")],
            "There is x.",
        ],
        tools=[Says()],
        name="helper",
    )
    assert recorder.kinds == [
        *("session_started", "reasoning", "content", "usage_update"),
        *("tool_call_started", "tool_output", "tool_call_completed", "turn_completed"),
        *("content", "usage_update", "turn_completed", "done"),
    ]
    started = recorder.of(SessionStarted)[0]
    assert (started.agent, started.model) == ("helper", "scripted/model")
    assert [(each.turn, each.stop_reason) for each in recorder.of(TurnCompleted)] == [
        (1, "tool_use"),
        (2, "end_turn"),
    ]
    assert [each.snapshot.requests for each in recorder.of(UsageUpdate)] == [1, 2]


async def test_what_the_model_is_asked_is_what_the_agent_was_built_with() -> None:
    _, model = await run(
        ["ok"],
        system_prompt="Be brief.",
        tools=[Says()],
        temperature=0.3,
        max_tokens=4000,
        thinking_tokens=2000,
    )
    (asked,) = model.requests
    assert asked.system == "Be brief."
    assert [tool.name for tool in asked.tools] == ["says"]
    assert (asked.temperature, asked.max_tokens, asked.thinking_tokens) == (0.3, 4000, 2000)
    assert list(asked.messages) == [ChatMessage.user("Begin.")]


async def test_the_session_holds_the_whole_transcript() -> None:
    model = ScriptedModel([["I look.", Call("says", {"lines": ["x"]})], "There is x."])
    session = await Agent(model=model, tools=[Says()]).run_streaming("Begin.", Recorder())
    assert [message.role for message in session.messages] == ["user", "assistant", "user", "assistant"]
    check_pairing(session.messages)
    assert session.text == "There is x."
    assert session.usage.output_tokens == 10
    assert (session.turns, session.stop_reason) == (2, "end_turn")


async def test_a_plain_run_is_shown_on_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    session = await Agent(model=ScriptedModel(["There is x."])).run("Begin.")
    assert session.text == "There is x."
    assert "There is x." in capsys.readouterr().out


async def test_no_state_is_kept_between_runs_and_messages_can_be_replayed() -> None:
    model = ScriptedModel(["one", "two", "three"])
    agent = Agent.quick(model, "Be brief.", [])
    first = await agent.run_streaming("First?", Recorder())
    await agent.run_streaming("Second?", Recorder())
    assert len(model.requests[1].messages) == 1
    again = [*first.messages, ChatMessage.user("What did I ask first?")]
    last = await agent.run_streaming_with_messages(again, Recorder())
    assert [message.text for message in last.messages] == ["First?", "one", "What did I ask first?", "three"]
    assert agent.initial_messages("First?") == [ChatMessage.user("First?")]


@pytest.mark.parametrize("messages", [[], [ChatMessage.user("a"), ChatMessage.assistant("b")]])
async def test_messages_that_do_not_end_with_the_user_are_refused(messages: list[ChatMessage]) -> None:
    with pytest.raises(ConfigurationError, match="last message must be the user's"):
        await Agent(model=ScriptedModel([])).run_streaming_with_messages(messages, Recorder())


@pytest.mark.parametrize("prompt", ["", " \n"])
async def test_an_empty_prompt_is_refused(prompt: str) -> None:
    with pytest.raises(ConfigurationError, match="prompt is empty"):
        await Agent(model=ScriptedModel([])).run_streaming(prompt, Recorder())


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_turns": 0},
        {"attempts": 0},
        {"max_parallel_tools": 0},
        {"tool_output_characters": 10},
        {"thinking_tokens": 8192},
        {"max_continuations": -1},
        {"max_tokens": 0},
    ],
)
def test_wrong_numbers_are_refused_when_the_agent_is_built(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Agent(model=ScriptedModel([]), **wrong)  # type: ignore[arg-type]


async def test_the_turn_limit_is_an_error_with_a_whole_transcript() -> None:
    call = [Call("says", {"lines": ["x"]})]
    recorder, error = await fails_to_run([call, call, call], tools=[Says()], max_turns=3)
    assert isinstance(error, TurnLimitReached)
    session: Any = error.session
    check_pairing([*session.messages, ChatMessage.user("Go on.")])
    assert (session.turns, len(session.messages)) == (3, 7)
    assert recorder.of(Error)[0].code == "turn_limit_reached"


async def test_an_error_of_the_model_leaves_the_transcript_to_go_on_from() -> None:
    recorder, error = await fails_to_run([[Call("says", {"lines": ["x"]})], ModelError("no")], tools=[Says()])
    assert isinstance(error, ModelError)
    session: Any = error.session
    assert len(session.messages) == 3
    assert recorder.of(Error)[0].code == "model"
    model = ScriptedModel(["Fine."])
    after = [*session.messages[:-1], session.messages[-1]]
    await Agent(model=model).run_streaming_with_messages(after, Recorder())


async def test_an_answer_that_was_cut_off_goes_on_by_itself() -> None:
    model = ScriptedModel(
        [Turn("One, ", stop_reason="max_tokens"), Turn("two, ", stop_reason="max_tokens"), "three."]
    )
    recorder = Recorder()
    session = await Agent(model=model).run_streaming("Count.", recorder)
    assert session.text == "One, two, three."
    assert recorder.text == "One, two, three."
    assert [each.messages[-1] for each in model.requests[1:]] == [GO_ON, GO_ON]


async def test_a_paused_turn_goes_on_with_nothing_added() -> None:
    model = ScriptedModel([Turn("One, ", stop_reason="pause_turn"), "two."])
    session = await Agent(model=model).run_streaming("Count.", Recorder())
    assert model.requests[1].messages[-1] == ChatMessage.assistant("One, ")
    assert session.text == "One, two."


async def test_going_on_has_an_end_that_the_session_tells() -> None:
    model = ScriptedModel([Turn("more ", stop_reason="max_tokens")] * 3)
    async with model:
        session = await Agent(model=model, max_continuations=2).run_streaming("Talk.", Recorder())
    assert session.stop_reason == "max_tokens"


async def test_an_answer_without_content_is_not_kept_and_goes_on() -> None:
    _, model = await run([Turn(stop_reason="max_tokens"), "Here."])
    assert [message.role for message in model.requests[1].messages] == ["user", "user"]


async def test_a_call_that_was_cut_off_is_not_run() -> None:
    ran: list[str] = []

    async def deploy(target: str = "production") -> None:
        ran.append(target)

    cut = Turn(Call("deploy", {"target": "staging"}), Call("deploy", {}), stop_reason="max_tokens")
    recorder, model = await run([cut, "I see."], tools=[deploy])
    assert ran == ["staging"]
    assert [block.is_error for block in results(model)] == [False, True]
    assert "cut off" in told(model)[1]
    assert len(recorder.of(ToolCallFailed)) == 1


# What the model does wrong.


async def test_malformed_arguments_are_told_and_shown_as_they_were() -> None:
    written = '{"lines": ["a\n"]'
    recorder, model = await run([Call("says", malformed=written), "Sorry."], tools=[Says()])
    assert told(model) == ["ValueError: the arguments are not a JSON object: write them again"]
    assert recorder.of(ToolCallStarted)[0].arguments == written


async def test_a_tool_that_is_not_there_is_told() -> None:
    _, model = await run([Call("browser", {}), "Sorry."], tools=[Says()])
    assert told(model) == ["LookupError: there is no tool 'browser': there are 'says'"]


async def test_no_arguments_are_an_empty_object() -> None:
    async def now(zone: str) -> str:
        return zone

    recorder, model = await run([Call("now"), "Sorry."], tools=[now])
    assert recorder.of(ToolCallStarted)[0].arguments == "{}"
    assert told(model) == ["the arguments are wrong: zone: Field required"]


async def test_text_that_is_not_unicode_reaches_consumers() -> None:
    recorder, _ = await run([["\ud800", Call("says", {"lines": ["\udfff"]})], "ok"], tools=[Says()])
    assert json.loads(recorder.of(ToolCallStarted)[0].arguments) == {"lines": ["\udfff"]}


# Retries.


async def test_an_attempt_that_failed_is_in_the_trace_and_not_in_the_transcript() -> None:
    model = ScriptedModel([Turn("Let me", ModelUnavailable("overloaded")), "Let me look."])
    recorder = Recorder()
    session = await Agent(model=model).run_streaming("Begin.", recorder)
    check_order(recorder.events)
    assert recorder.text == "Let me look."
    (retried,) = recorder.of(ModelRetried)
    assert (retried.attempt, retried.error, retried.code) == (1, "overloaded", "model_unavailable")
    assert retried.shown_characters == 6
    assert [message.text for message in session.messages] == ["Begin.", "Let me look."]


async def test_a_model_that_is_never_available_ends_the_run() -> None:
    recorder, error = await fails_to_run([ModelUnavailable("overloaded")] * 2, attempts=2)
    assert isinstance(error, ModelUnavailable)
    assert recorder.kinds == ["session_started", "model_retried", "error"]


# Secrets.


@given(
    cuts=st.lists(st.integers(0, len(SECRET) + 20), max_size=6), kind=st.sampled_from(["text", "thinking"])
)
@settings(deadline=None, max_examples=50)
def test_a_secret_reaches_no_consumer_however_the_model_cuts_it(cuts: list[int], kind: str) -> None:
    text = f"The key is {SECRET} indeed."
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[a:b] for a, b in pairwise(places)]
    parts = pieces if kind == "text" else [Thought(piece) for piece in pieces]
    recorder, _ = asyncio.run(run([[*parts, Call("x", {"key": SECRET})], f"{SECRET}"]))
    shown = "".join(each.content for each in recorder.events if isinstance(each, Content | Reasoning))
    assert shown.startswith("The key is ")
    assert " indeed." in shown
    for event in recorder.events:
        assert SECRET not in event.model_dump_json()
    assert SECRET not in shown


async def test_secrets_in_errors_are_taken_out() -> None:
    recorder, _ = await fails_to_run([ModelUnavailable(f"key {SECRET}"), ModelError(f"key {SECRET}")])
    for event in (recorder.of(ModelRetried)[0], recorder.of(Error)[0]):
        assert SECRET not in event.model_dump_json()


async def test_without_filters_all_is_shown_as_it_is() -> None:
    recorder, _ = await run([SECRET], filters=())
    assert recorder.text == SECRET


# Consumers.


class Picky:
    """A consumer that fails at one kind of event."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.after = 0

    def on_event(self, event: StreamEvent) -> None:
        if event.type == self.kind:
            msg = f"no {self.kind}, please"
            raise OSError(msg)


@pytest.mark.parametrize(
    "kind",
    [
        "session_started",
        "content",
        "usage_update",
        "tool_call_started",
        "tool_output",
        "tool_call_completed",
        "done",
    ],
)
async def test_an_error_of_a_consumer_ends_the_run_with_that_error(kind: str) -> None:
    tool = Says()
    script = ScriptedModel([["text", Call("says", {"lines": ["x"]})], "done"])
    recorder = Recorder()
    agent = Agent(model=script, tools=[tool])
    with pytest.raises(OSError, match=f"no {kind}, please"):
        await agent.run_with_consumers("Begin.", [recorder, Picky(kind)])
    assert recorder.kinds[-1] == kind  # nothing comes after the error


async def test_an_error_of_a_consumer_cancels_the_other_tools() -> None:
    tool = Says()
    calls = [Call("says", {"waits": True}), Call("says", {"lines": ["x"]})]
    agent = Agent(model=ScriptedModel([calls]), tools=[tool])
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(OSError, match="tool_output"):
            await agent.run_streaming("Begin.", Picky("tool_output"))
    assert tool.cancelled >= 1


async def test_an_error_of_a_consumer_that_is_ignored_ends_nothing() -> None:
    recorder = Recorder()
    multi = MultiConsumer().add(Picky("content"), on_error="ignore").add(recorder)
    await Agent(model=ScriptedModel(["text"])).run_streaming("Begin.", multi)
    check_order(recorder.events)
    assert recorder.kinds[-1] == "done"


async def test_a_slow_consumer_slows_the_run() -> None:
    seen: list[str] = []

    async def slow(event: StreamEvent) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        seen.append(event.type)

    recorder = Recorder()
    await Agent(model=ScriptedModel([list("abc")])).run_with_consumers(
        "Begin.", [CallbackConsumer(slow), recorder]
    )
    assert seen == recorder.kinds


# Cancellation.


async def test_a_cancelled_run_abandons_the_model_and_says_so() -> None:
    never = asyncio.Event()
    model = ScriptedModel([["Let me", never, " look."]])
    recorder = Recorder()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        task = group.create_task(Agent(model=model).run_streaming("Begin.", recorder))
        await recorder.wait_for(Content)
        task.cancel()
    assert task.cancelled()
    assert model.abandoned == 1
    assert recorder.of(Error)[0].message == "the run was cancelled"
    check_order(recorder.events)


async def test_a_cancelled_run_waits_for_no_consumer_that_does_not_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aeolus_sandbox.agent.events.FAREWELL_S", 0.05)
    channel = ChannelConsumer(max_events=1)
    model = ScriptedModel([["text"]])
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        task = group.create_task(Agent(model=model).run_streaming("Begin.", channel))
        await model.wait_for_requests(1)
        task.cancel()
    assert task.cancelled()


async def test_results_of_tools_that_had_ended_are_kept_when_the_run_is_cancelled() -> None:
    recorder = Recorder()
    calls = [Call("says", {"lines": ["x\n"]}, id="ended"), Call("says", {"waits": True}, id="open")]
    history = Kept()
    agent = Agent(model=ScriptedModel([calls]), tools=[Says()], history=history)  # type: ignore[arg-type]
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        task = group.create_task(agent.run_streaming("Begin.", recorder))
        await recorder.wait_for(ToolCallCompleted)
        task.cancel()
    assert task.cancelled()
    check_order(recorder.events)
    assert [block.tool_use_id for block in history.messages[-1].content] == ["ended"]  # type: ignore[union-attr]


# What cannot be recorded.


class Kept:
    """A history in memory that has room for so many messages."""

    def __init__(self, room: int = 100) -> None:
        self.room = room
        self.messages: list[ChatMessage] = []

    async def create(self, agent: str, model: str) -> str:
        return "conversation"

    def transcript(self, conversation_id: str, *, at: int) -> "Kept":
        return self

    async def append(self, messages: tuple[ChatMessage, ...], usage: object) -> None:
        if len(self.messages) + len(messages) > self.room:
            msg = "no room"
            raise StorageFull(msg)
        self.messages += messages


@pytest.mark.parametrize("room", [0, 1])
async def test_a_step_that_cannot_be_recorded_is_not_run(room: int) -> None:
    tool, history = Says(), Kept(room)
    recorder, error = await fails_to_run([Call("says", {"lines": ["x"]})], tools=[tool], history=history)
    assert isinstance(error, StorageFull)
    assert tool.inputs == []
    assert recorder.kinds[-1] == "error"
    assert recorder.of(Error)[0].code == "storage_full"
    assert len(history.messages) == room


# Every run, whatever happens in it.

parts = st.one_of(
    st.sampled_from(["a", "Let me look. ", "\n", SECRET[:20], "é"]),
    st.builds(Thought, st.sampled_from(["Hm.", "So."])),
    st.sampled_from(
        [
            Call("says", {"lines": ["one\n", "two\n"]}),
            Call("says", {"lines": []}),
            Call("says", {"lines": 3}),
            Call("says", malformed="{"),
            Call("broken", {}),
            Call("nowhere", {"x": 1}),
        ]
    ),
)
errors: st.SearchStrategy[Callable[[], Exception]] = st.sampled_from(
    [lambda: ModelUnavailable("overloaded"), lambda: ModelError("refused"), lambda: RuntimeError("a fault")]
)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    said: list[Any] = draw(st.lists(parts, max_size=5))
    if draw(st.integers(0, 4)) == 0:
        said.append(draw(errors)())
    reason = draw(st.sampled_from([None, None, "max_tokens", "pause_turn", "refusal"]))
    return Turn(*said, stop_reason=reason)


async def broken() -> None:
    msg = "broken"
    raise OSError(msg)


@given(script=st.lists(turns(), max_size=6))
@settings(deadline=None, max_examples=150)
def test_every_run_keeps_the_rules_of_its_events_and_leaves_a_whole_transcript(script: list[Turn]) -> None:
    async def check() -> None:
        recorder = Recorder()
        model = ScriptedModel([*script, *["The end."] * 10])
        agent = Agent(model=model, tools=[Says(), broken], max_turns=4, max_continuations=2, attempts=3)
        try:
            session: Any = await agent.run_streaming("Begin.", recorder)
        except (ModelError, TurnLimitReached) as error:
            session = error.session
            assert recorder.kinds[-1] == "error"
        except RuntimeError:  # the script's
            assert recorder.kinds[-1] == "error"
            session = None
        else:
            assert recorder.kinds[-1] == "done"
        check_order(recorder.events)
        if session is not None:
            check_pairing([*session.messages, ChatMessage.user("Go on.")])
            uses = [use for message in session.messages for use in message.tool_uses]
            assert [each.tool_call_id for each in recorder.of(ToolCallStarted)] == [use.id for use in uses]
            assert session.usage.requests == len(recorder.of(UsageUpdate)) == session.turns

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "_FIRST_WAIT_S", 0.0)
        asyncio.run(check())
