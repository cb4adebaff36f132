"""Contenders whose sample is the time from asking for work to the first piece of output, in milliseconds."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

import aiodocker

from aeolus_sandbox import (
    CodeInterpreterInput,
    CodeInterpreterTool,
    IsolationMode,
    SessionManager,
    StreamingTool,
    TerminalInput,
    TerminalTool,
)
from aeolus_sandbox.streaming.session import StreamingToolSession
from benchmarks.bare import GREETING, config_of, started
from benchmarks.languages import CELLS
from benchmarks.rounds import Contender

SETTLE_S: Final = 0.3
"""How long nothing is asked of the engine before a sample: what the one before left to remove is gone by then."""
PYTHON_CELL: Final = "print(1)"


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of session, and what it says first."""

    tool: StreamingTool[Any, Any, Any]
    tool_input: Any
    says: str


def terminal(
    *, tty: bool = True, isolation: IsolationMode = IsolationMode.CONTAINER, command: str = GREETING
) -> Work:
    """Return a command that greets, on a terminal or on pipes."""
    return Work(TerminalTool(isolation=isolation), TerminalInput(command=command, tty=tty), "hello")


def cell(language: str, *, isolation: IsolationMode = IsolationMode.CONTAINER) -> Work:
    """Return a cell that prints one character, in a kernel of its own."""
    code, says = (PYTHON_CELL, "1") if language == "python" else (CELLS[language], "x")
    tool = CodeInterpreterTool(isolation=isolation)
    return Work(tool, CodeInterpreterInput(code=code, language=language), says)


def cold(manager: SessionManager, work: Work) -> Contender:
    """Return the time to the first chunk of a session whose container must be made first."""

    async def once() -> float:
        return await first_chunk(manager, work) * 1000

    return once


def parked(manager: SessionManager, work: Work) -> Contender:
    """Return the time to the first chunk of a session that takes a container from the manager's pool.

    A session that did not find one there is a failure: it would be a cold start under another name.
    """

    async def once() -> float:
        missed = misses(manager)
        took = await first_chunk(manager, work)
        assert misses(manager) == missed, "no container was parked"
        return took * 1000

    return once


def bare(docker: aiodocker.Docker, *, tty: bool) -> Contender:
    """Return the time from create to the first output of a container, by aiodocker alone."""
    config = config_of("shell", TerminalInput(command=GREETING).argv, tty=tty)

    async def once() -> float:
        began = time.perf_counter()
        async with started(docker, config) as stream:
            message = await stream.read_out()
            took = time.perf_counter() - began
        assert message is not None
        assert message.data.startswith(b"hello"), message
        return took * 1000

    return once


def rested(contender: Contender, *pools: SessionManager) -> Contender:
    """Return a contender before whose sample these managers' pools are full and the engine has nothing to do."""

    async def once() -> float:
        for manager in pools:
            await manager.pool.wait_filled()
        await asyncio.sleep(SETTLE_S)
        return await contender()

    return once


def misses(manager: SessionManager) -> int:
    """Return how many sessions have found nothing parked."""
    return sum(kind.misses for kind in manager.pool.stats())


async def first_chunk(manager: SessionManager, work: Work) -> float:
    """Return how long a session takes from `open` to its first chunk, in seconds."""
    began = time.perf_counter()
    async with await manager.open(work.tool, work.tool_input) as session:
        await expect(session, work)
        return time.perf_counter() - began


async def expect(session: StreamingToolSession[Any, Any], work: Work) -> None:
    """Wait for a session's first chunk, and check it."""
    chunk = await session.next_chunk()
    assert chunk is not None, "there was no output"
    assert chunk.as_text().startswith(work.says), chunk
