"""The guide for streaming tools says nothing that is not so: its blocks run, and print what it says."""

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aeolus_sandbox.cli import app

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
GUIDE = ROOT / "docs" / "streaming-tools.md"
TEXT = GUIDE.read_text("utf-8")

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ANCHOR = re.compile(r"\]\(#([^)]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block of the guide."""

    language: str
    source: str
    line: int


BLOCKS = [Block(found[1], found[2], TEXT.count("\n", 0, found.start(2))) for found in _FENCE.finditer(TEXT)]
EXAMPLE_SOURCES = [path.read_text("utf-8") for path in EXAMPLES.glob("*_tool.py")]
EXCERPTS = [
    each
    for each in BLOCKS
    if each.language == "python" and any(each.source in text for text in EXAMPLE_SOURCES)
]


def programs() -> Iterator[tuple[Block, str]]:
    """Yield the blocks that run, each with what it must print."""
    for block, after in zip(BLOCKS, [*BLOCKS[1:], None], strict=True):
        if block.language == "python" and block not in EXCERPTS:
            yield block, after.source if after is not None and after.language == "text" else ""


async def execute(block: Block, names: dict[str, Any]) -> None:
    """Run a block that may await at its top level; a traceback names the guide's lines."""
    code = compile("\n" * block.line + block.source, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, names)
    if inspect.isawaitable(running):
        async with asyncio.timeout(20):
            await running


async def test_every_block_prints_what_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AEOLUS_STATE", str(tmp_path / "state.db"))
    names: dict[str, Any] = {"__name__": "guide"}
    for block, printed in programs():
        await execute(block, names)
        assert capsys.readouterr().out == printed, f"{GUIDE.name}, line {block.line}"


def test_what_is_not_run_is_a_part_of_an_example_that_is() -> None:
    assert len(EXCERPTS) == 4
    assert all(each.source.startswith(("class ", "    async def start(")) for each in EXCERPTS)


def test_every_text_block_is_what_a_program_prints() -> None:
    texts = [each for each in BLOCKS if each.language == "text"]
    assert len(texts) == len([printed for _, printed in programs() if printed]) > 10


SENSOR_PRINTS = """\
0 20.0 °C
1 25.0 °C
2 20.0 °C
3 15.0 °C
readings_count=4 average=20.0 min=15.0 max=25.0
"""
ADVENTURE_PRINTS = """\
You are in the hall.
You are in the garden.
There is no way there.
You have come to the garden in 1 moves.
Farewell.
room='garden' moves=1 ended_by='farewell'
"""


@pytest.mark.parametrize(
    ("name", "printed"), [("sensor_tool.py", SENSOR_PRINTS), ("adventure_tool.py", ADVENTURE_PRINTS)]
)
def test_the_examples_of_the_guide_run(name: str, printed: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env=os.environ | {"AEOLUS_STATE": str(tmp_path / "state.db"), "PYTHONUTF8": "1"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


@pytest.mark.parametrize(
    "command",
    [
        *(line for block in BLOCKS if block.language == "sh" for line in block.source.splitlines()),
        *("aeolus checkpoints list", "aeolus checkpoints show KEY", "aeolus checkpoints prune"),
    ],
)
def test_the_commands_of_the_guide_exist(command: str) -> None:
    _, *words = shlex.split(command)
    options = [word for word in words if word.startswith("--")]
    shown = CliRunner().invoke(app, [*words[:2], "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert shown.exit_code == 0, shown.output
    assert all(option in shown.output for option in options)


def test_the_links_of_the_guide_lead_somewhere() -> None:
    for target in _LINK.findall(TEXT):
        assert (GUIDE.parent / target).exists(), target
    headings = {heading.lower().replace(" ", "-") for heading in _HEADING.findall(TEXT)}
    assert set(_ANCHOR.findall(TEXT)) <= headings
    assert "docs/streaming-tools.md" in (ROOT / "README.md").read_text("utf-8")
