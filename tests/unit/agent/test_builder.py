"""`agent.stream(...)`: handlers, async handlers, and the run as an iterator."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from aeolus_sandbox.agent.agent import Agent
from aeolus_sandbox.agent.builder import StreamBuilder
from aeolus_sandbox.agent.handlers import PARALLEL_HANDLERS
from aeolus_sandbox.errors import ConfigurationError, ModelError, TurnLimitReached
from aeolus_sandbox.testing.scripted_model import Call, ScriptedModel, Step, Thought
from tests.unit.agent.agent_runs import LIMIT_S, Says, check_order

WHOLE: list[Step] = [
    [Thought("Hm."), "Let me look.", Call("says", {"lines": ["x\n"]}), Call("says", {"lines": 1})],
    "Done.",
]


def stream(*steps: Step, **settings: Any) -> StreamBuilder:
    return Agent(model=ScriptedModel(steps), tools=[Says()], **settings).stream("Begin.")


async def test_every_handler_is_called_with_what_the_guide_says() -> None:
    heard: list[tuple[Any, ...]] = []

    def note(name: str) -> Any:
        return lambda *values: heard.append((name, *values))

    session = await (
        stream(*WHOLE)
        .on_content(note("content"))
        .on_reasoning(note("reasoning"))
        .on_session_started(note("session"))
        .on_tool_call(note("call"))
        .on_tool_output(note("output"))
        .on_tool_result(note("result"))
        .on_tool_failed(note("failed"))
        .on_error(note("error"))
        .on_done(note("done"))
        .run()
    )
    assert heard[:3] == [
        ("session", session.session_id),
        ("reasoning", "Hm."),
        ("content", "Let me look."),
    ]
    middle = heard[3:-2]
    assert ("call", "says", '{"lines": ["x\\n"]}') in middle
    assert ("call", "says", '{"lines": 1}') in middle
    assert ("output", "says", "x\n") in middle
    ended = {"success": True, "was_cancelled": False, "session_id": None}
    assert ("result", "says", ended) in middle
    assert [each[:2] for each in middle if each[0] == "failed"] == [("failed", "says")]
    assert heard[-2:] == [("content", "Done."), ("done",)]


async def test_every_async_handler_is_called_as_a_task_and_has_ended() -> None:
    heard: list[tuple[Any, ...]] = []

    def note(name: str) -> Any:
        async def handler(*values: object) -> None:
            await asyncio.sleep(0)
            heard.append((name, *values))

        return handler

    builder = (
        stream(*WHOLE)
        .on_content_async(note("content"))
        .on_reasoning_async(note("reasoning"))
        .on_session_started_async(note("session"))
        .on_tool_call_async(note("call"))
        .on_tool_output_async(note("output"))
        .on_tool_result_async(note("result"))
        .on_tool_failed_async(note("failed"))
        .on_error_async(note("error"))
        .on_done_async(note("done"))
        .on_event_async(note("event"))
    )
    async with asyncio.timeout(LIMIT_S):
        await builder.run()
    names = [name for name, *_ in heard]
    counts = {name: names.count(name) for name in set(names)}
    assert counts.pop("event") > 10
    assert counts == {
        "content": 2,
        "reasoning": 1,
        "session": 1,
        "call": 2,
        "output": 1,
        "result": 1,
        "failed": 1,
        "done": 1,
    }


async def test_the_error_that_ends_the_run_is_handled_and_raised() -> None:
    heard: list[str] = []
    with pytest.raises(ModelError, match="refused"):
        await stream(ModelError("refused")).on_error(heard.append).run()
    assert heard == ["model: refused"]


async def test_a_plain_handler_that_gives_back_an_awaitable_is_waited_for() -> None:
    heard: list[str] = []

    async def slowly(text: str) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        heard.append(text)

    await stream(["a", "b"]).on_content(slowly).on_done(lambda: heard.append("done")).run()
    assert heard == ["a", "b", "done"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_a_handler_raises_ends_the_run(is_async: bool) -> None:
    async def later(_: str) -> None:
        raise ZeroDivisionError

    def now(_: str) -> None:
        raise ZeroDivisionError

    builder = stream([Call("says", {"lines": []})] * 3, "Done.")
    builder = (
        builder.on_tool_call_async(lambda name, _: later(name))
        if is_async
        else builder.on_tool_call(lambda name, _: now(name))
    )
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(ZeroDivisionError):
            await builder.run()


async def test_what_an_async_handler_raises_at_the_very_end_is_raised_too() -> None:
    async def late() -> None:
        await asyncio.sleep(0.01)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await stream("Done.").on_done_async(late).run()


async def test_async_handlers_are_bounded() -> None:
    running, most = 0, 0

    async def handler(_: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    await stream(["x"] * (PARALLEL_HANDLERS + 20)).on_content_async(handler).run()
    assert (running, most) == (0, PARALLEL_HANDLERS)


async def test_cancelling_the_run_ends_async_handlers() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handler(_: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        task = group.create_task(stream(["x", asyncio.Event()]).on_content_async(handler).run())
        await begun.wait()
        task.cancel()
    assert task.cancelled()
    assert ended.is_set()


async def test_cancelling_while_only_handlers_are_left_ends_them() -> None:
    done, ended = asyncio.Event(), asyncio.Event()

    async def handler() -> None:
        done.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        task = group.create_task(stream("x").on_done_async(handler).run())
        await done.wait()
        task.cancel()
    assert task.cancelled()
    assert ended.is_set()


async def test_a_builder_runs_anew_each_time() -> None:
    builder = stream("one", "two")
    first = await builder.run()
    second = await builder.run()
    assert first.session_id != second.session_id
    assert (first.text, second.text) == ("one", "two")
    assert builder.session is second


# As an iterator.


async def test_iterating_yields_every_event_and_then_the_session_is_there() -> None:
    builder = stream(*WHOLE)
    events = [event async for event in builder]
    check_order(events)
    assert events[-1].type == "done"
    assert builder.session is not None
    assert builder.session.text == "Done."


async def test_handlers_are_called_while_iterating() -> None:
    heard: list[str] = []
    async for _ in stream("Done.").on_content(heard.append):
        pass
    assert heard == ["Done."]


async def test_an_error_comes_as_event_and_is_then_raised() -> None:
    seen: list[Any] = []

    async def iterate() -> None:
        seen.extend([event async for event in stream(Call("says", {}), max_turns=1).on_event(seen.append)])

    with pytest.raises(TurnLimitReached):
        await iterate()
    assert seen[-1].type == "error"


async def test_an_error_before_the_first_event_is_raised() -> None:
    agent = Agent(model=ScriptedModel([]))
    with pytest.raises(ConfigurationError, match="prompt is empty"):
        async for _ in agent.stream(" "):
            pass


async def test_a_run_that_is_left_early_is_cancelled_with_its_tools() -> None:
    tool = Says()
    model = ScriptedModel([[*["x"] * 500, Call("says", {"lines": ["x"], "waits": True})]])
    events = aiter(Agent(model=model, tools=[tool]).stream("Begin."))
    async with asyncio.timeout(LIMIT_S):
        async with aclosing(events) as iterated:  # type: ignore[type-var]
            async for event in iterated:
                if event.type == "tool_output":
                    break
        assert tool.cancelled == 1


async def test_a_run_that_is_far_ahead_of_who_left_it_ends_too() -> None:
    model = ScriptedModel([["x"] * 1000])
    async with asyncio.timeout(LIMIT_S):
        async with aclosing(aiter(Agent(model=model).stream("Begin."))) as events:  # type: ignore[type-var]
            await anext(events)
            await model.wait_for_requests(1)
    assert model.abandoned == 1


async def test_breaking_out_of_the_loop_cancels_the_run() -> None:
    tool = Says()
    model = ScriptedModel([[Call("says", {"lines": ["x"], "waits": True})]])
    async with asyncio.timeout(LIMIT_S):
        async for event in Agent(model=model, tools=[tool]).stream("Begin."):
            if event.type == "tool_output":
                break
        while not tool.cancelled:  # the loop closes the iterator  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_run_goes_on_from_messages_as_a_stream() -> None:
    agent = Agent(model=ScriptedModel(["one", "two"]))
    first = await agent.stream("First?").run()
    prompt = agent.initial_messages("Second?")
    second = await agent.stream_messages([*first.messages, *prompt]).run()
    assert [message.text for message in second.messages] == ["First?", "one", "Second?", "two"]
