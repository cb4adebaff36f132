"""The guide for agents says nothing that is not so: its blocks run, and print what it says."""

import ast
import asyncio
import inspect
import re
import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aeolus_sandbox.cli import app
from aeolus_sandbox.testing.messages_server import MessagesServer, Reply, Request, streams, tool_block

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "agents.md"
TEXT = GUIDE.read_text("utf-8")

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+)\)")
_NUMBER = re.compile(r"[\d.]+\d|\d")


@dataclass(frozen=True)
class Block:
    """One fenced block of the guide."""

    language: str
    source: str
    line: int


BLOCKS = [Block(found[1], found[2], TEXT.count("\n", 0, found.start(2))) for found in _FENCE.finditer(TEXT)]


def reply(request: Request) -> Reply:
    """Answer as the guide's model does: it converts miles, and repeats everything else."""
    last = request.body["messages"][-1]["content"][-1]
    if last["type"] == "tool_result":
        return streams(f"It came to: {last['content'][0]['text']}")
    if "miles" in last["text"]:
        amount = float(_NUMBER.findall(last["text"])[0])
        return streams(tool_block("convert", {"amount": amount if amount % 1 else int(amount)}))
    return streams(f"You said: {last['text']}")


async def execute(block: Block, names: dict[str, Any]) -> None:
    """Run a block that may await at its top level; a traceback names the guide's lines."""
    code = compile("\n" * block.line + block.source, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, names)
    if inspect.isawaitable(running):
        async with asyncio.timeout(30):
            await running


async def test_every_block_prints_what_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-guide")
    names: dict[str, Any] = {"__name__": "guide"}
    ran = 0
    async with MessagesServer(reply) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        for block, after in pairwise([*BLOCKS, Block("", "", 0)]):
            if block.language == "python":
                ran += 1
                await execute(block, names)
                printed = after.source if after.language == "text" else ""
                assert capsys.readouterr().out == printed, f"{GUIDE.name}, line {block.line}"
        await names["agent"].aclose()
    assert server.refusals == []
    assert ran == len([block for block in BLOCKS if block.language == "python"]) > 5


def test_every_text_block_is_what_a_program_prints() -> None:
    for before, block in pairwise(BLOCKS):
        assert block.language != "text" or before.language == "python"


@pytest.mark.parametrize(
    "command", [line for block in BLOCKS if block.language == "sh" for line in block.source.splitlines()]
)
def test_the_commands_of_the_guide_exist(command: str) -> None:
    _, *words = shlex.split(command)
    options = [word for word in words if word.startswith("--")]
    names = words[:2] if words[0] == "traces" else words[:1]
    shown = CliRunner().invoke(app, [*names, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert shown.exit_code == 0, shown.output
    assert all(option in shown.output for option in options)


def test_the_links_of_the_guide_lead_somewhere() -> None:
    for target in _LINK.findall(TEXT):
        assert (GUIDE.parent / target).exists(), target
