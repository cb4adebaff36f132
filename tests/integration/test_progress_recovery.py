"""Whenever the host process is killed, the next one goes on from the stored progress: nothing is lost."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aeolus_sandbox.storage.checkpoints import Checkpoints
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.records import Checkpoint
from tests.integration.conftest import REPOSITORY
from tests.integration.counting_host import UPTO
from tests.integration.running import PATIENCE_S

KEY = "counted"
StartHost = Callable[[], Awaitable[Process]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def start_host(state: Path) -> AsyncIterator[StartHost]:
    """Start a host process that reads as it is told; see counting_host.py."""
    started: list[Process] = []

    async def start() -> Process:
        command = (sys.executable, "-m", "tests.integration.counting_host", str(state), KEY)
        process = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, stdin=PIPE, stdout=PIPE)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _line(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        line = await process.stdout.readline()
    assert line, "the process ended"
    told: dict[str, Any] = json.loads(line)
    return told


async def _read(process: Process, count: int) -> list[int]:
    assert process.stdin is not None
    process.stdin.write(b"%d\n" % count)
    return [(await _line(process))["number"] for _ in range(count)]


async def _run(state: Path) -> Checkpoint:
    database = Database(state)
    try:
        run = await Checkpoints(database).get(KEY)
    finally:
        await database.aclose()
    assert run is not None
    return run


async def _progress_above(state: Path, number: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while int((await _run(state)).progress or -1) <= number:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)


async def test_next_process_gets_the_progress_that_a_killed_one_had_stored(
    start_host: StartHost, state: Path
) -> None:
    seen: list[int] = []
    stored = None
    for attempt in range(1, 4):
        host = await start_host()
        after = (await _line(host))["after"]
        begin = int(after or -1) + 1
        assert begin <= len(seen), "something was lost"
        assert (begin == 0) == (attempt == 1), "nothing was kept"
        read = await _read(host, 50)
        await _progress_above(state, begin)
        read += await _read(host, 30)  # of these, nobody knows how many are written down
        assert read == list(range(begin, begin + 80))
        seen = [*seen[:begin], *read]
        host.kill()
        await host.wait()
        run = await _run(state)
        assert run.state == "running"
        assert run.attempts == attempt
        stored = run.progress
        assert begin < int(stored or -1) < begin + 80
    host = await start_host()
    assert (await _line(host))["after"] == stored
    assert host.stdin is not None
    host.stdin.write(b"\n")
    for number in range(int(stored or -1) + 1, UPTO):
        assert await _line(host) == {"number": number}
    assert await _line(host) == {"upto": UPTO}
    host.stdin.close()
    async with asyncio.timeout(PATIENCE_S):
        assert await host.wait() == 0
    assert (await _run(state)).state == "done"


async def test_process_that_waits_for_a_run_gets_its_progress_when_the_other_is_killed(
    start_host: StartHost, state: Path
) -> None:
    first = await start_host()
    assert await _line(first) == {"after": None}
    second = await start_host()
    await _read(first, 50)
    await _progress_above(state, 10)
    first.kill()
    await first.wait()
    after = (await _line(second))["after"]
    assert 10 < int(after) < 49
    assert await _read(second, 3) == [int(after) + 1 + place for place in range(3)]
