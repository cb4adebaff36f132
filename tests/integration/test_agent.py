"""The agent as a whole: the real client, a local Messages API, real containers, and every consumer."""

import asyncio
import json
import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from aeolus_sandbox import CodeInterpreterTool, SessionManager, TerminalTool
from aeolus_sandbox.agent.agent import Agent
from aeolus_sandbox.consumers.trace_file import read_trace
from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.events import (
    ModelRetried,
    Reasoning,
    ToolCallCompleted,
    ToolCallFailed,
    ToolOutput,
)
from aeolus_sandbox.storage.history import History
from aeolus_sandbox.storage.traces import TraceStore
from aeolus_sandbox.testing.messages_server import (
    MessagesServer,
    Request,
    error_event,
    fails,
    streams,
    text_block,
    thinking_block,
    tool_block,
)
from tests.unit.agent.agent_runs import Recorder, check_order

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 90
MODEL = "anthropic/claude-haiku-4-5"
KEY = "sk-ant-very-secret-0123456789"

LOOK = """
import pandas as pd
frame = pd.read_csv("data.csv")
print(frame.groupby("garden").apples_kg.mean())
"""
DRAW = """
import matplotlib.pyplot as plt
frame.pivot(index="year", columns="garden", values="apples_kg").plot(marker="o")
plt.show()
"""


def result_of(request: Request) -> Any:
    """Return the result of a tool that a request brings."""
    (block,) = [each for each in request.body["messages"][-1]["content"] if each["type"] == "tool_result"]
    return block


async def left_of(engine: DockerEngine, pid: int) -> list[str]:
    found = await engine.list_containers({OWNER_LABEL: None})
    return [each.id for each in found if f":{pid}:" in each.labels[OWNER_LABEL]]


async def test_the_csv_agent_finds_out_draws_and_leaves_nothing(tmp_path: Path, engine: DockerEngine) -> None:
    server = MessagesServer(
        fails(529, "overloaded_error", retry_after="0"),
        streams(
            thinking_block("I look ", "at it first."),
            text_block("Let me ", "look."),
            tool_block("run_python", fragments=('{"co', 'de": ' + json.dumps(LOOK), "}")),
        ),
        streams("Now I ", error_event("overloaded_error")),
        streams("Now I draw.", tool_block("run_python", {"code": DRAW})),
        streams("North has the best harvest, ", "133 kg a year."),
        strict=True,
    )
    async with asyncio.timeout(LIMIT_S), server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            ROOT / "examples" / "csv_agent.py",
            cwd=tmp_path,
            env=os.environ | {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": KEY, "NO_COLOR": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
        said = stdout.decode()
    assert process.returncode == 0, said + stderr.decode()
    assert "133.25" in said
    assert said.count("Now I") == 1
    assert "North has the best harvest, 133 kg a year." in said
    assert "north    133.25" in result_of(server.requests[2])["content"][0]["text"]
    output = tmp_path / "csv-agent-output"
    (plot,) = (output / "plots").iterdir()
    assert plot.read_bytes().startswith(b"\x89PNG\r\n")
    await check_traces(output)
    assert KEY not in said + stderr.decode()
    assert await left_of(engine, process.pid) == []


async def check_traces(output: Path) -> None:
    """Check that both traces and the history hold what happened."""
    (file,) = (output / "traces").glob("*.jsonl")
    events = [line.event for line in read_trace(file)]
    check_order(events)
    assert len([event for event in events if isinstance(event, ModelRetried)]) == 2
    assert "".join(event.content for event in events if isinstance(event, Reasoning)) == "I look at it first."
    assert any(isinstance(event, ToolOutput) and event.stream == "image" for event in events)
    assert [event.success for event in events if isinstance(event, ToolCallCompleted)] == [True, True]
    session_id = events[0].session_id
    async with aclosing(TraceStore.at(output / "traces.db")) as store:
        (run,) = await store.runs()
        assert (run.state, run.lost_events, run.session_id) == ("done", 0, session_id)
        rows = [row async for row in store.rows(session_id)]
    assert rows[-1].last_sequence == len(events) - 1
    async with History(output / "history.db") as history:
        kept = await history.load(session_id)
    roles = [message.role for message in kept.messages]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant"]
    assert "Now I draw." in [message.text for message in kept.messages]
    assert kept.usage.requests == 3


async def test_tools_of_one_answer_run_side_by_side_in_real_containers(engine: DockerEngine) -> None:
    server = MessagesServer(
        streams(
            tool_block("terminal", {"command": "printf 'caf\\303\\251\\n'; exit 3"}, id="t1"),
            tool_block("code_interpreter", {"code": "print(6 * 7)"}, id="c1"),
            tool_block("terminal", {"command": "true"}, id="t2"),
            tool_block("terminal", {"command": "ls", "packages": ["x"]}, id="t3"),
        ),
        streams("Done."),
        strict=True,
    )
    recorder = Recorder()
    async with asyncio.timeout(LIMIT_S), server, SessionManager() as manager:
        agent = Agent(
            model=MODEL,
            base_url=server.url,
            api_key=SecretStr(KEY),
            tools=[TerminalTool(), CodeInterpreterTool()],
            manager=manager,
        )
        async with agent:
            session = await agent.run_streaming("Try it.", recorder)
        assert manager.open_sessions == []
    check_order(recorder.events)
    assert session.text == "Done."
    results = [
        block
        for block in server.requests[1].body["messages"][-1]["content"]
        if block["type"] == "tool_result"
    ]
    assert [block["tool_use_id"] for block in results] == ["t1", "c1", "t2", "t3"]
    texts = [block["content"][0]["text"] for block in results]
    assert texts[:3] == [
        "café\n[exited with code 3]",
        "42\n[exited with code 0]",
        "(no output)\n[exited with code 0]",
    ]
    assert [block.get("is_error", False) for block in results] == [True, False, False, True]
    assert len(recorder.of(ToolCallFailed)) == 1
    assert await engine.list_containers({OWNER_LABEL: manager.owner}) == []


async def test_a_cancelled_run_leaves_no_container(engine: DockerEngine) -> None:
    recorder = Recorder()
    server = MessagesServer(
        streams(tool_block("terminal", {"command": "echo begun; sleep 600"})), strict=True
    )
    async with asyncio.timeout(LIMIT_S), server, asyncio.TaskGroup() as group:
        agent = Agent(model=MODEL, base_url=server.url, api_key=SecretStr(KEY), tools=[TerminalTool()])
        task = group.create_task(agent.run_streaming("Wait.", recorder))
        await recorder.wait_for(ToolOutput)
        assert len(await left_of(engine, os.getpid())) >= 1
        task.cancel()
        await asyncio.wait([task])
        await agent.aclose()
    assert task.cancelled()
    assert recorder.kinds[-2:] == ["tool_call_failed", "error"]
    assert await left_of(engine, os.getpid()) == []
