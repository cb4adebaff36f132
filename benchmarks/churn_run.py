"""Sessions opened and ended as fast as they come, in a process of its own; then what of them is left.

Usage: python -m benchmarks.churn_run SECONDS; prints one JSON object.
"""

import asyncio
import gc
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import aiodocker
from pydantic import BaseModel

from aeolus_sandbox import SessionManager, TerminalInput, TerminalTool
from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from benchmarks.bursts import wait_removed
from benchmarks.kernel_counters import children_of, resident_bytes

AT_ONCE: Final = 4
_WARM_UP_SESSIONS: Final = 3 * AT_ONCE
_UNCOUNTED: Final = 1 / 6
"""The part of the time after which memory is watched: what is made once has been made by then."""
_PAUSE_S: Final = 1.0
_PARKED: Final = TerminalInput(command="echo hello")
_WAYS: Final = (
    _PARKED,
    TerminalInput(command="echo hello", tty=False),
    TerminalInput(command="echo hello; sleep 60"),
)
"""What sessions do: on a terminal from the pool, on pipes, and closed while the command still runs."""
_TOOL: Final = TerminalTool()

Levels = dict[str, int]


class Measured(BaseModel):
    """What one run gave."""

    sessions: int
    seconds: float
    """Until the last container was removed."""
    failures: list[str]
    left: Levels
    """What there is more of than before, when the manager has closed."""
    grown: Levels
    """What there is more of while the manager is open than after its first few sessions."""
    bytes_each: float
    """By how much the process grows with each session."""
    memory: list[tuple[int, int]]
    """Sessions so far, and bytes in memory."""


async def measure(seconds: float) -> Measured:
    """Open and end sessions for a while, and count what they leave."""
    async with DockerEngine() as engine, aiodocker.Docker() as docker:
        await _fill_thread_pool()
        await engine.info()
        before = await _levels(docker, owner=None)
        async with SessionManager() as manager:
            churn = _Churn(manager)
            await manager.pool.keep(_TOOL, _PARKED, minimum=2)
            await churn.until(sessions=_WARM_UP_SESSIONS)
            await wait_removed(manager, engine)
            first = await _levels(docker, owner=manager.owner)
            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                group.create_task(churn.until(seconds=seconds))
                group.create_task(churn.watch_memory(seconds))
            await wait_removed(manager, engine)
            took = time.perf_counter() - began
            grown = _more(await _levels(docker, owner=manager.owner), first)
        left = _more(await _levels(docker, owner=manager.owner), before)
    return Measured(
        sessions=churn.done - _WARM_UP_SESSIONS,
        seconds=took,
        failures=churn.failures,
        left=left,
        grown=grown,
        bytes_each=_slope(churn.memory),
        memory=churn.memory,
    )


class _Churn:
    """Several that open and end one session after the other."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._begun = 0
        self.done = 0
        self.failures: list[str] = []
        self.memory: list[tuple[int, int]] = []

    async def until(self, *, sessions: int | None = None, seconds: float = 3600.0) -> None:
        """Go on until so many have been begun, or so much time has passed."""
        deadline = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work(sessions, deadline))

    async def watch_memory(self, seconds: float) -> None:
        """Note the memory of this process again and again, garbage aside."""
        await asyncio.sleep(seconds * _UNCOUNTED)
        deadline = time.monotonic() + seconds * (1 - _UNCOUNTED)
        while time.monotonic() < deadline:
            gc.collect()
            self.memory.append((self.done, resident_bytes(os.getpid())))
            await asyncio.sleep(_PAUSE_S)

    async def _work(self, sessions: int | None, deadline: float) -> None:
        while time.monotonic() < deadline and (sessions is None or self._begun < sessions):
            way = _WAYS[self._begun % len(_WAYS)]
            self._begun += 1
            try:
                await self._session(way)
            except Exception as error:  # noqa: BLE001 - a failure is a result: it is counted and told
                self.failures.append(repr(error))
            self.done += 1

    async def _session(self, way: TerminalInput) -> None:
        async with asyncio.timeout(60), await self._manager.open(_TOOL, way) as session:
            chunk = await session.next_chunk()
            assert chunk is not None, "there was no output"
            assert chunk.text.startswith("hello"), chunk
            if way is not _WAYS[-1]:
                result = await session.finalize()
                assert result.status.ok, result


async def _levels(docker: aiodocker.Docker, *, owner: str | None) -> Levels:
    """Count what sessions could leave behind."""
    gc.collect()
    info = await docker.system.info()
    containers = await docker.containers.list(all=True) if owner else []
    ours = [each for each in containers if each["Labels"].get(OWNER_LABEL) == owner]
    networks = await docker.networks.list()
    untyped: Any = docker.volumes
    volumes = await untyped.list()
    levels = {
        "networks": len(networks),
        "volumes": len(volumes["Volumes"] or ()),
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "child processes": len(children_of(os.getpid())),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "temporary files": len(list(Path(tempfile.gettempdir()).iterdir())),
        "containers": len(ours),
    }
    # Docker gives these to everybody, Podman does not.
    of_engine = {"engine's files": "NFd", "engine's goroutines": "NGoroutines"}
    return levels | {name: int(info[field]) for name, field in of_engine.items() if field in info}


def _more(after: Levels, before: Levels) -> Levels:
    return {name: after[name] - before[name] for name in after if after[name] > before[name]}


def _slope(memory: list[tuple[int, int]]) -> float:
    done = [float(sessions) for sessions, _ in memory]
    if len(set(done)) < 2:
        return 0.0
    return statistics.linear_regression(done, [float(size) for _, size in memory]).slope


async def _fill_thread_pool() -> None:
    """Have all threads of the loop's pool, which come with use and stay."""
    async with asyncio.TaskGroup() as group:
        for _ in range(64):
            group.create_task(asyncio.to_thread(time.sleep, 0.02))


def main(seconds: float) -> Measured:
    """Measure with a folder for temporary files that nobody else uses."""
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        return asyncio.run(measure(seconds))


if __name__ == "__main__":
    print(main(float(sys.argv[1])).model_dump_json())
