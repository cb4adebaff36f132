"""Runs pieces of code in sessions, and collects what came of them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aeolus_sandbox import (
    CodeChunk,
    CodeInterpreterInput,
    CodeInterpreterTool,
    CodeResult,
    Limits,
    Policy,
    SessionManager,
    StreamingToolSession,
)
from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from tests.integration.running import ALL_CHUNKS, PATIENCE_S

CodeSession = StreamingToolSession[CodeChunk, CodeResult]


@dataclass(frozen=True, slots=True)
class Ran:
    """One piece of code that has ended."""

    result: CodeResult
    chunks: list[CodeChunk]
    seconds: float
    """Time from the opened session to the result."""

    def text(self, stream: str = "stdout") -> str:
        return "".join(chunk.content for chunk in self.of(stream))

    def of(self, stream: str) -> list[CodeChunk]:
        return [chunk for chunk in self.chunks if chunk.stream == stream]

    @property
    def error_name(self) -> str | None:
        return None if self.result.error is None else self.result.error.name

    @property
    def error_value(self) -> str:
        assert self.result.error is not None
        return self.result.error.value


async def open_code(
    manager: SessionManager,
    code: str,
    *,
    tool: CodeInterpreterTool | None = None,
    limits: Limits | None = None,
    policy: Policy = ALL_CHUNKS,
    **settings: Any,
) -> CodeSession:
    """Start a piece of code."""
    tool_input = CodeInterpreterInput(code=code, **settings)
    return await manager.open(tool or CodeInterpreterTool(), tool_input, limits=limits, policy=policy)


async def run_code(manager: SessionManager, code: str, **settings: Any) -> Ran:
    """Run a piece of code to its end."""
    async with asyncio.timeout(PATIENCE_S), await open_code(manager, code, **settings) as session:
        began = time.monotonic()
        chunks = [chunk async for chunk in session]
        result = await session.finalize()
        return Ran(result, chunks, time.monotonic() - began)


async def read_until(session: CodeSession, wanted: str) -> str:
    """Read until `wanted` has come, and return all the text that was read."""
    seen = ""
    async with asyncio.timeout(PATIENCE_S):
        while wanted not in seen:
            chunk = await session.next_chunk()
            assert chunk is not None, f"the output ended without {wanted!r}: {seen!r}"
            seen += chunk.content
    return seen


async def finish(session: CodeSession) -> CodeResult:
    """Wait for a session's end, but not for ever."""
    async with asyncio.timeout(PATIENCE_S):
        return await session.finalize()


async def container_count(engine: DockerEngine, manager: SessionManager) -> int:
    """Return how many containers a manager has."""
    return len(await engine.list_containers({OWNER_LABEL: manager.owner}))


async def wait_container_count(engine: DockerEngine, manager: SessionManager, wanted: int) -> None:
    """Wait until a manager has so many containers."""
    async with asyncio.timeout(PATIENCE_S):
        while await container_count(engine, manager) != wanted:  # noqa: ASYNC110 - the engine tells nobody
            await asyncio.sleep(0.1)


@asynccontextmanager
async def shared_manager() -> AsyncIterator[SessionManager]:
    """Give a manager that a module's tests share, so that a kept kernel serves many of them."""
    async with SessionManager() as opened:
        yield opened
    async with DockerEngine() as engine:
        assert await container_count(engine, opened) == 0
