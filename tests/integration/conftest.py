"""What the tests on real containers share: other processes that own containers, and images of their own."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.engine.image_catalog import image_reference
from tests.integration.running import PATIENCE_S, wait_until_none
from tests.integration.second_engine import SecondEngine

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class OwnerProcess:
    """Another process that has sessions open."""

    process: asyncio.subprocess.Process
    owner: str
    sessions: list[str]

    async def read_line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            return (await self.process.stdout.readline()).decode()

    async def wait_ended(self) -> int:
        """Wait for its end."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()


@pytest.fixture(scope="session")
def shell_image() -> str:
    """Give the reference of the image `shell`, which is read from files."""
    return image_reference("shell")


@pytest.fixture(scope="session")
def second_engine(shell_image: str) -> Iterator[SecondEngine]:
    """Give an engine that may be killed; those who use it belong to the group `second engine`."""
    engine = SecondEngine()
    try:
        engine.start()
        engine.load(shell_image)
        yield engine
    finally:
        engine.remove()


StartOwner = Callable[[str, str], Awaitable[OwnerProcess]]


@pytest.fixture
async def start_owner(engine: DockerEngine) -> AsyncIterator[StartOwner]:
    """Start another process that opens sessions (`tty,pipes`) and ends in some manner (see owner_process.py)."""
    started: list[OwnerProcess] = []

    async def start(kinds: str, manner: str) -> OwnerProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integration.owner_process",
            kinds,
            manner,
            cwd=REPOSITORY,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await process.stdout.readline()
        assert line, f"the owner process ended with code {await process.wait()}"
        owner = OwnerProcess(process, **json.loads(line))
        started.append(owner)
        return owner

    yield start
    for owner in started:
        with suppress(ProcessLookupError):
            os.kill(owner.process.pid, signal.SIGKILL)
        await owner.wait_ended()
        await owner.process.communicate()  # closes the pipe
        await wait_until_none(engine, {OWNER_LABEL: owner.owner}, within_s=PATIENCE_S)
