"""`aeolus agent` and `aeolus traces` as people use them, against a local Messages API and with real containers."""

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aeolus_sandbox.cli import app
from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.events import parse_event
from aeolus_sandbox.testing.messages_server import Ending, MessagesServer, Reply, fails, streams, tool_block
from tests.unit.agent.agent_runs import check_order

pytestmark = pytest.mark.docker

LIMIT_S = 90.0
KEY = "sk-ant-very-secret-0123456789"
PLOT = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()"


@dataclass
class Done:
    """How a call of the command ended."""

    code: int
    stdout: str
    stderr: str


async def start(
    *arguments: str, url: str = "http://127.0.0.1:9", key: str = KEY
) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    environment |= {"ANTHROPIC_BASE_URL": url, "NO_COLOR": "1", "PYTHONUTF8": "1"}
    environment |= {"ANTHROPIC_API_KEY": key} if key else {}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aeolus_sandbox", *arguments),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def aeolus(
    *arguments: str, url: str = "http://127.0.0.1:9", key: str = KEY, stdin: bytes = b""
) -> Done:
    async with asyncio.timeout(LIMIT_S):
        process = await start(*arguments, url=url, key=key)
        stdout, stderr = await process.communicate(stdin)
    assert process.returncode is not None
    return Done(process.returncode, stdout.decode(), stderr.decode())


def server(*replies: Reply) -> MessagesServer:
    return MessagesServer(*replies, strict=True)


async def test_without_a_key_it_says_so_in_one_line() -> None:
    done = await aeolus("agent", "Hello", key="")
    assert (done.code, done.stdout) == (125, "")
    assert (
        done.stderr
        == "aeolus: there is no key for Anthropic's models: set ANTHROPIC_API_KEY, or give api_key\n"
    )


async def test_it_shows_what_the_model_says_and_does() -> None:
    replies = server(
        streams("Let me look.", tool_block("terminal", {"command": "echo six times $((6 * 7))"})),
        streams("It is 42."),
    )
    async with replies:
        done = await aeolus("agent", "What is it?", url=replies.url)
    assert done.code == 0, done.stderr
    assert "Let me look." in done.stdout
    assert "six times 42" in done.stdout
    assert "It is 42." in done.stdout
    assert [tool["name"] for tool in replies.requests[0].body["tools"]] == ["terminal", "code_interpreter"]


async def test_json_lines_are_events_and_images_go_where_they_are_told_to(tmp_path: Path) -> None:
    replies = server(streams(tool_block("code_interpreter", {"code": PLOT})), streams("Drawn."))
    async with replies:
        done = await aeolus(
            *("agent", "-", "--json", "--out", str(tmp_path / "plots"), "--tool", "code_interpreter"),
            url=replies.url,
            stdin="Draw, bitte: ä".encode(),
        )
    assert done.code == 0, done.stderr
    check_order([parse_event(line) for line in done.stdout.splitlines()])
    assert done.stdout.isascii()
    (plot,) = (tmp_path / "plots").iterdir()
    assert plot.read_bytes().startswith(b"\x89PNG\r\n")
    asked = replies.requests[0].body
    assert asked["messages"][0]["content"][0]["text"] == "Draw, bitte: ä"
    assert [tool["name"] for tool in asked["tools"]] == ["code_interpreter"]


async def test_a_conversation_goes_on_and_its_traces_can_be_read(tmp_path: Path) -> None:
    history, traces = str(tmp_path / "history.db"), str(tmp_path / "traces")
    kept = ("--history", history, "--trace", traces)
    replies = server(streams("Hello, Ada."), streams("Your name is Ada."))
    async with replies:
        first = await aeolus("agent", "I am Ada.", *kept, "--thinking", "2000", url=replies.url)
        assert first.code == 0, first.stderr
        session = first.stderr.split("--continue ")[1].split()[0]
        second = await aeolus("agent", "Who am I?", *kept, "--continue", session, url=replies.url)
    assert second.code == 0, second.stderr
    assert replies.requests[0].body["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert len(replies.requests[1].body["messages"]) == 3
    listed = await aeolus("traces", "list", traces)
    assert [line.split("\t")[:2] for line in listed.stdout.splitlines()] == [[session, "done"]]
    shown = await aeolus("traces", "show", traces)
    assert "Hello, Ada." in shown.stdout
    assert "Your name is Ada." in shown.stdout
    exported = await aeolus("traces", "export", traces, session)
    kinds = [json.loads(line)["event"]["type"] for line in exported.stdout.splitlines()]
    assert kinds.count("session_started") == kinds.count("done") == 2
    missing = await aeolus("traces", "show", traces, "nobody")
    assert (missing.code, missing.stderr) == (1, "aeolus: there is no trace of the session 'nobody'\n")


async def test_a_model_that_refuses_is_a_failure_in_one_line() -> None:
    async with server(fails(400, "invalid_request_error", "no such model")) as replies:
        done = await aeolus("agent", "Hello", url=replies.url)
    assert done.code == 125
    assert len(done.stderr.splitlines()) == 1
    assert KEY not in done.stdout + done.stderr


async def test_the_time_limit_ends_it() -> None:
    async with MessagesServer(streams("Let me", Ending.SILENCE)) as replies:
        done = await aeolus("agent", "Hello", "--timeout", "2", url=replies.url)
    assert done.code == 124, done.stderr
    assert "ended after 2 s" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tool", "browser"),
        ("--continue", "some-id"),
        ("--tool", "log_tailer"),
        ("--max-turns", "0"),
        ("--timeout", "-1"),
        ("--thinking", "1"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_asked(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["agent", "Hello", *arguments], env={"NO_COLOR": "1", "COLUMNS": "200"})
    assert done.exit_code == 2
    assert arguments[0] in done.output


async def test_ctrl_c_cancels_orderly_and_leaves_no_container(engine: DockerEngine, tmp_path: Path) -> None:
    replies = server(streams(tool_block("terminal", {"command": "echo begun; sleep 600"})))
    async with asyncio.timeout(LIMIT_S), replies:
        process = await start("agent", "Wait.", "--json", "--trace", str(tmp_path), url=replies.url)
        assert process.stdout is not None
        while b"tool_output" not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        stdout, stderr = await process.communicate()
    assert process.returncode == 130
    kinds = [json.loads(line)["type"] for line in stdout.splitlines()]
    assert kinds[-2:] == ["tool_call_failed", "error"]
    assert b"interrupted, cleaning up" in stderr
    found = await engine.list_containers({OWNER_LABEL: None})
    assert not [each for each in found if f":{process.pid}:" in each.labels[OWNER_LABEL]]
