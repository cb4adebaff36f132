"""Streaming tools as an agent's tools: their output, their grants, and what is kept apart."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aeolus_sandbox.agent.agent import Agent
from aeolus_sandbox.agent.tools import image_in
from aeolus_sandbox.capabilities import CapabilityKind, Grants
from aeolus_sandbox.events import ToolCallCompleted, ToolCallFailed, ToolCallStarted, ToolOutput
from aeolus_sandbox.manager import SessionManager
from aeolus_sandbox.model.chat import ImageBlock
from aeolus_sandbox.streaming.policies import Window
from aeolus_sandbox.testing.local_engine import LocalEngine
from aeolus_sandbox.testing.scripted_model import Call, ScriptedModel
from aeolus_sandbox.tools.code_interpreter.models import CodeChunk
from aeolus_sandbox.tools.terminal import TerminalTool
from tests.unit.agent.agent_runs import LIMIT_S, Recorder, Says, results, run, told

SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture
async def manager() -> AsyncIterator[SessionManager]:
    async with asyncio.timeout(LIMIT_S), LocalEngine() as engine, SessionManager(engine=engine) as opened:
        yield opened


def says(*lines: str, **more: Any) -> Call:
    return Call("says", {"lines": list(lines), **more})


async def test_the_model_gets_the_output_and_how_it_ended() -> None:
    recorder, model = await run([says("one\n", "two\n"), "ok"], tools=[Says()])
    assert told(model) == ["one\ntwo\n[said all]"]
    assert [each.text for each in recorder.of(ToolOutput)] == ["one\n", "two\n"]
    completed = recorder.of(ToolCallCompleted)[0]
    assert completed.success
    assert completed.result == {"success": True, "was_cancelled": False, "session_id": None}


async def test_a_program_that_failed_is_an_error_to_the_model_and_a_result_to_consumers() -> None:
    recorder, model = await run([says("no\n"), "ok"], tools=[Says(success=False)])
    assert results(model)[0].is_error
    assert told(model) == ["no\n[exited with code 1]"]
    assert not recorder.of(ToolCallCompleted)[0].success


@pytest.mark.parametrize("line", ["", "   ", "\0", "\n\n", "\x1b[31m\x1b[0m"])
async def test_a_blank_output_is_said_in_words(line: str) -> None:
    _, model = await run([says(line), "ok"], tools=[Says()])
    assert told(model) == ["(no output)\n[said all]"]


@pytest.mark.parametrize("limit", [4000, 300, 120])
async def test_the_end_of_a_long_output_and_how_it_ended_are_never_cut_off(limit: int) -> None:
    lines = [f"collect {n}\n" for n in range(5000)] + ["E   AssertionError: 2 != 3\n"]
    _, model = await run([says(*lines), "ok"], tools=[Says(success=False)], tool_output_characters=limit)
    (text,) = told(model)
    assert len(text) <= limit
    assert text.endswith("E   AssertionError: 2 != 3\n[exited with code 1]")
    assert text.count("characters left out") == 1
    assert text.startswith("collect 0\n")


async def test_however_little_the_model_may_get_it_is_told_that_something_is_missing() -> None:
    _, model = await run([says("é" * 100_000), "ok"], tools=[Says()], tool_output_characters=100)
    (text,) = told(model)
    assert len(text) <= 100
    assert "characters left out" in text
    assert text.endswith("[said all]")


async def test_one_very_long_line_is_cut_and_counted() -> None:
    _, model = await run([says("é" * 100_000), "ok"], tools=[Says()], tool_output_characters=4000)
    (text,) = told(model)
    assert text.endswith("é\n[said all]")
    kept = text.count("é")
    assert f"{100_000 - kept} of " in text


async def test_what_the_policy_dropped_is_announced() -> None:
    tool = Says()
    tool.policy = Window(max_chunks=2)
    _, model = await run([says(*[f"{n}\n" for n in range(2000)]), "ok"], tools=[tool])
    assert "bytes were dropped here" in told(model)[0]
    assert "1999\n[said all]" in told(model)[0]


async def test_wrong_input_is_told_and_nothing_starts() -> None:
    tool = Says()
    recorder, model = await run([Call("says", {"lines": 7}), "ok"], tools=[tool])
    assert told(model)[0].startswith("the arguments are wrong: lines: ")
    assert recorder.of(ToolCallFailed)[0].error == told(model)[0]
    assert tool.inputs == []


async def test_a_tool_without_a_grant_is_refused_and_the_model_is_told() -> None:
    tool = Says()
    tool.required_capability = CapabilityKind.CUSTOM
    recorder, model = await run([says("x"), "ok"], tools=[tool])
    assert recorder.of(ToolCallFailed)[0].code == "capability_denied"
    assert told(model)[0].startswith("capability_denied: ")
    assert tool.inputs == []
    _, model = await run([says("x"), "ok"], tools=[tool], grants=Grants.of(CapabilityKind.CUSTOM))
    assert told(model) == ["x\n[said all]"]


async def test_grants_only_narrow_those_of_a_manager_that_is_given(manager: SessionManager) -> None:
    tool = Says()
    tool.required_capability = CapabilityKind.CUSTOM
    wide = Grants.of(CapabilityKind.CUSTOM)
    recorder, _ = await run([says("x"), "ok"], tools=[tool], grants=wide, manager=manager)
    assert recorder.of(ToolCallFailed)[0].code == "capability_denied"


async def test_a_grant_that_the_model_writes_into_its_arguments_is_none() -> None:
    tool = TerminalTool()
    _, model = await run(
        [Call("terminal", {"command": "ls", "grants": ["install_packages"]}), "ok"], tools=[tool]
    )
    assert "the arguments are wrong: grants: " in told(model)[0]


async def test_two_agents_of_one_manager_do_not_meet_in_a_kept_session(manager: SessionManager) -> None:
    tool = Says()
    for _ in range(2):
        await run([says("x", session_id="main"), "ok"], tools=[tool], manager=manager)
    one, other = [each.session_id for each in tool.inputs]
    assert one != other
    assert str(one).endswith("/main")
    assert str(other).endswith("/main")


async def test_parallel_calls_of_one_tool_are_told_apart() -> None:
    calls = [Call("says", {"lines": [f"{n}\n"] * 20}, id=f"call-{n}") for n in range(6)]
    recorder, model = await run([calls, "ok"], tools=[Says()], max_parallel_tools=3)
    assert [block.tool_use_id for block in results(model)] == [f"call-{n}" for n in range(6)]
    for n, text in enumerate(told(model)):
        assert text == f"{n}\n" * 20 + "[said all]"
        shown = [each.text for each in recorder.of(ToolOutput) if each.tool_call_id == f"call-{n}"]
        assert "".join(shown) == f"{n}\n" * 20


async def test_no_more_tools_run_at_once_than_are_allowed() -> None:
    running, most = 0, 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1

    recorder, _ = await run([[Call("work")] * 10, "ok"], tools=[work], max_parallel_tools=3)
    assert most == 3
    assert len({each.tool_call_id for each in recorder.of(ToolCallStarted)}) == 10


async def test_secrets_that_a_tool_prints_in_pieces_reach_nobody() -> None:
    recorder, model = await run(
        [says("token ", SECRET[:9], SECRET[9:20], SECRET[20:], "\n"), "ok"], tools=[Says()]
    )
    shown = "".join(each.text for each in recorder.of(ToolOutput))
    assert shown.startswith("token ")
    for text in (shown, told(model)[0], *(event.model_dump_json() for event in recorder.events[5:])):
        assert SECRET[:9] not in text
        assert SECRET[20:] not in text


async def test_a_command_runs_through_the_terminal_tool(manager: SessionManager) -> None:
    command = "printf 'caf\\303\\251\\n'; cat; exit 3"  # cat ends, because nobody is there to answer
    recorder, model = await run(
        [Call("terminal", {"command": command, "tty": False}), "ok"], tools=[TerminalTool()], manager=manager
    )
    assert told(model) == ["café\n[exited with code 3]"]
    assert results(model)[0].is_error
    assert not recorder.of(ToolCallCompleted)[0].success
    assert manager.open_sessions == []


async def test_cancelling_the_run_ends_its_tools_and_leaves_nothing() -> None:
    async with asyncio.timeout(LIMIT_S), LocalEngine() as engine, SessionManager(engine=engine) as manager:
        recorder = Recorder()
        model = ScriptedModel([Call("terminal", {"command": "echo begun; sleep 600", "tty": False})])
        agent = Agent(model=model, tools=[TerminalTool()], manager=manager)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(agent.run_streaming("Begin.", recorder))
            await recorder.wait_for(ToolOutput)
            task.cancel()
        assert task.cancelled()
        assert recorder.kinds[-2:] == ["tool_call_failed", "error"]
        assert recorder.of(ToolCallFailed)[0].error == "the run was cancelled"
        assert manager.open_sessions == []
        assert await engine.list_containers({}) == []


def image(mime_type: str, content: str) -> CodeChunk:
    return CodeChunk(stream="image", content=content, mime_type=mime_type)


def test_only_images_that_a_model_can_see_are_given_to_it() -> None:
    assert image_in(image("image/png", "aGk=\n")) == ImageBlock(media_type="image/png", data="aGk=")
    assert image_in(image("image/svg+xml", "<svg/>")) is None
    assert image_in(image("image/png", "a" * 6_000_000)) is None
    assert image_in(CodeChunk(stream="stdout", content="x")) is None
