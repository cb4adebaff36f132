"""The guide of the log tailer says nothing that is not so: its blocks run, and print what it says."""

import ast
import asyncio
import inspect
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aeolus_sandbox.cli import app
from tests.integration.conftest import REPOSITORY
from tests.integration.running import PATIENCE_S

GUIDE = REPOSITORY / "docs" / "log-tailer.md"
TEXT = GUIDE.read_text("utf-8")

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([\w./-]+)(?:#[\w-]+)?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ANCHOR = re.compile(r"\]\(#([^)]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block of the guide."""

    language: str
    source: str
    line: int


BLOCKS = [Block(found[1], found[2], TEXT.count("\n", 0, found.start(2))) for found in _FENCE.finditer(TEXT)]


def programs() -> Iterator[tuple[Block, str]]:
    """Yield the blocks that run, each with what it must print."""
    for block, after in zip(BLOCKS, [*BLOCKS[1:], None], strict=True):
        if block.language == "python":
            yield block, after.source if after is not None and after.language == "text" else ""


async def execute(block: Block, names: dict[str, Any]) -> None:
    """Run a block that may await at its top level; a traceback names the guide's lines."""
    code = compile("\n" * block.line + block.source, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, names)
    if inspect.isawaitable(running):
        async with asyncio.timeout(PATIENCE_S):
            await running


@pytest.mark.docker
async def test_every_block_prints_what_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names: dict[str, Any] = {"__name__": "guide"}
    try:
        for block, printed in programs():
            await execute(block, names)
            assert capsys.readouterr().out == printed, f"{GUIDE.name}, line {block.line}"
    finally:
        if "manager" in names:
            await names["manager"].aclose()


def test_every_text_block_is_what_a_program_prints() -> None:
    texts = [each for each in BLOCKS if each.language == "text"]
    assert len(texts) == len([printed for _, printed in programs() if printed]) > 5


@pytest.mark.parametrize(
    "command", [line for block in BLOCKS if block.language == "sh" for line in block.source.splitlines()]
)
def test_the_commands_of_the_guide_exist(command: str) -> None:
    program, name, *words = shlex.split(command)
    assert (program, name) == ("aeolus", "tail")
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert shown.exit_code == 0, shown.output
    assert all(word in shown.output for word in words if word.startswith("--"))


def test_the_links_of_the_guide_lead_somewhere() -> None:
    for target in _LINK.findall(TEXT):
        assert (GUIDE.parent / target).exists(), target
    headings = {heading.lower().replace(" ", "-") for heading in _HEADING.findall(TEXT)}
    assert set(_ANCHOR.findall(TEXT)) <= headings
    assert "docs/log-tailer.md" in (REPOSITORY / "README.md").read_text("utf-8")
