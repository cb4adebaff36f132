"""Runs commands in sessions, and collects what came of them."""

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aeolus_sandbox import (
    Limits,
    Policy,
    SessionManager,
    StreamingToolSession,
    TerminalChunk,
    TerminalInput,
    TerminalResult,
    TerminalTool,
    Window,
)
from aeolus_sandbox.engine.base import OWNER_LABEL, SESSION_LABEL, ContainerInfo
from aeolus_sandbox.engine.docker import DockerEngine

TerminalSession = StreamingToolSession[TerminalChunk, TerminalResult]

PATIENCE_S: Final = 60.0
"""How long a test waits for what must happen, however busy the machine is."""
ALL_CHUNKS: Final = Window(max_chunks=1_000_000)
"""Gives a reader everything that the spool holds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One command that has ended."""

    result: TerminalResult
    chunks: list[TerminalChunk]
    seconds: float

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def stdout(self) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks if chunk.stream == "stdout")

    @property
    def stderr(self) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks if chunk.stream == "stderr")


async def open_command(
    manager: SessionManager,
    command: str | tuple[str, ...],
    *,
    tool: TerminalTool | None = None,
    limits: Limits | None = None,
    policy: Policy = ALL_CHUNKS,
    **settings: Any,
) -> TerminalSession:
    """Start a command."""
    tool_input = TerminalInput(command=command, **settings)
    return await manager.open(tool or TerminalTool(), tool_input, limits=limits, policy=policy)


async def run_command(manager: SessionManager, command: str | tuple[str, ...], **settings: Any) -> Outcome:
    """Run a command to its end."""
    began = time.monotonic()
    async with asyncio.timeout(PATIENCE_S), await open_command(manager, command, **settings) as session:
        chunks = [chunk async for chunk in session]
        result = await session.finalize()
    return Outcome(result, chunks, time.monotonic() - began)


async def read_until(session: TerminalSession, wanted: str) -> str:
    """Read until `wanted` has come, and return all that was read."""
    seen = ""
    async with asyncio.timeout(PATIENCE_S):
        while wanted not in seen:
            chunk = await session.next_chunk()
            assert chunk is not None, f"the output ended without {wanted!r}: {seen!r}"
            seen += chunk.text
    return seen


async def read_rest(session: TerminalSession) -> str:
    """Read to the end."""
    async with asyncio.timeout(PATIENCE_S):
        return "".join([chunk.text async for chunk in session])


async def result_of(session: TerminalSession) -> TerminalResult:
    """Wait for a session's end, but not for ever."""
    async with asyncio.timeout(PATIENCE_S):
        return await session.finalize()


async def containers_of(engine: DockerEngine, owner: str) -> list[ContainerInfo]:
    """Return the containers of one manager."""
    return await engine.list_containers({OWNER_LABEL: owner})


async def container_of(engine: DockerEngine, session: TerminalSession) -> ContainerInfo:
    """Return the container of one session."""
    [found] = await engine.list_containers({SESSION_LABEL: session.id})
    return found


async def wait_until_none(engine: DockerEngine, labels: Mapping[str, str | None], *, within_s: float) -> None:
    """Wait until there is no container with these labels."""
    try:
        async with asyncio.timeout(within_s):
            while await engine.list_containers(labels):  # noqa: ASYNC110 - the engine tells only who asks
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"left after {within_s} s: {await engine.list_containers(labels)}") from None


def resident_bytes() -> int:
    """Return how much memory this process uses: field 2 of proc_pid_statm(5)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_descriptors() -> list[str]:
    """Return what the open files of this process are."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(link.readlink()))
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return found
