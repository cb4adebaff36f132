"""Many idle sessions of one kind, in a process of its own so that what they cost it can be told.

Usage: python -m benchmarks.density_run shells|sessions|kernels COUNT SECONDS; prints one JSON object.
"""

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiodocker
from pydantic import BaseModel

from aeolus_sandbox import (
    CodeInterpreterInput,
    CodeInterpreterTool,
    PoolSettings,
    SessionManager,
    StreamingTool,
    TerminalInput,
    TerminalTool,
)
from aeolus_sandbox.engine.base import OWNER_LABEL
from benchmarks.kernel_counters import (
    ContainerUse,
    available_bytes,
    container_use,
    process_use,
    processes_about,
    processes_named,
    resident_bytes,
)

AT_ONCE: Final = 4
_FILL_TIMEOUT_S: Final = 120.0
_SETTLE_S: Final = 1.0
_DAEMONS: Final = ("dockerd", "containerd")
_SHIMS: Final = ("containerd-shim-runc-v2", "containerd-shim-runsc-v1")


class Measured(BaseModel):
    """What one kind of idle session costs: memory of each in bytes, CPU of all together in seconds of one processor."""

    count: int
    seconds: float
    container_bytes: float
    cache_bytes: float
    shim_bytes: float
    daemon_bytes: float
    """By how much the engine's daemons have grown."""
    host_bytes: float
    available_bytes: float
    """By how much less memory the machine has for new programs: the whole of it, and whatever else it did meanwhile."""
    host_cpu_s: float
    container_cpu_s: float
    engine_cpu_s: float
    """Of the daemons and of these containers' shims."""

    @property
    def all_bytes(self) -> float:
        """What one takes of the machine."""
        return self.container_bytes + self.shim_bytes + self.daemon_bytes + self.host_bytes


@dataclass(frozen=True, slots=True)
class _Memory:
    host_bytes: int
    daemons_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class _Processors:
    containers_s: float
    engine_s: float


@dataclass(frozen=True, slots=True)
class _Idle:
    pids: list[int]
    """The first process of each container, as the host numbers it."""
    shims: list[int]


Grow = Callable[[int], Awaitable[None]]
"""Has so many idle sessions in all."""


async def measure(kind: str, count: int, seconds: float) -> Measured:
    """Have one such session, then `count` more, and let them be for a while."""
    # Each that is parked is asked once in this while whether it still answers.
    pool = PoolSettings(refill_concurrency=AT_ONCE, health_check_s=seconds)
    async with (
        SessionManager(max_sessions=count + 2, pool=pool) as manager,
        aiodocker.Docker() as docker,
        _KINDS[kind](manager) as grow,
    ):
        await grow(1)
        before = await _memory()
        await grow(count + 1)
        after = await _memory()
        idle = await _idle(docker, manager.owner)
        containers = sum((container_use(pid) for pid in idle.pids), ContainerUse())
        shims = process_use(idle.shims)
        began = _processors(idle)
        host_began_s = time.process_time()
        await asyncio.sleep(seconds)
        host_cpu_s = time.process_time() - host_began_s
        ended = _processors(idle)
    return Measured(
        count=count,
        seconds=seconds,
        container_bytes=containers.own_bytes / len(idle.pids),
        cache_bytes=containers.cache_bytes / len(idle.pids),
        shim_bytes=shims.memory_bytes / len(idle.pids),
        daemon_bytes=max(0, after.daemons_bytes - before.daemons_bytes) / count,
        host_bytes=(after.host_bytes - before.host_bytes) / count,
        available_bytes=(before.available_bytes - after.available_bytes) / count,
        host_cpu_s=host_cpu_s,
        container_cpu_s=ended.containers_s - began.containers_s,
        engine_cpu_s=ended.engine_s - began.engine_s,
    )


@asynccontextmanager
async def _parked_shells(manager: SessionManager) -> AsyncIterator[Grow]:
    yield _parking(manager, TerminalTool(), TerminalInput(command="true"))


@asynccontextmanager
async def _parked_kernels(manager: SessionManager) -> AsyncIterator[Grow]:
    yield _parking(manager, CodeInterpreterTool(), CodeInterpreterInput(code=""))


def _parking(manager: SessionManager, tool: StreamingTool[Any, Any, Any], tool_input: Any) -> Grow:
    async def grow(count: int) -> None:
        await manager.pool.keep(tool, tool_input, minimum=count)
        await manager.pool.wait_filled(timeout_s=_FILL_TIMEOUT_S)

    return grow


@asynccontextmanager
async def _open_sessions(manager: SessionManager) -> AsyncIterator[Grow]:
    """Give what opens sessions whose command waits for input that never comes."""
    async with AsyncExitStack() as held:
        slots = asyncio.Semaphore(AT_ONCE)
        opened = 0

        async def one() -> None:
            async with slots:
                session = await manager.open(
                    TerminalTool(), TerminalInput(command="echo there; read -r line")
                )
                await held.enter_async_context(session)
                assert await session.next_chunk() is not None

        async def grow(count: int) -> None:
            nonlocal opened
            async with asyncio.TaskGroup() as group:
                for _ in range(count - opened):
                    group.create_task(one())
            opened = count

        yield grow


_KINDS: Final = {"shells": _parked_shells, "sessions": _open_sessions, "kernels": _parked_kernels}


async def _memory() -> _Memory:
    await asyncio.sleep(_SETTLE_S)
    gc.collect()
    return _Memory(
        resident_bytes(os.getpid()),
        process_use(processes_named(_DAEMONS)).memory_bytes,
        available_bytes(),
    )


async def _idle(docker: aiodocker.Docker, owner: str) -> _Idle:
    containers = await docker.containers.list(filters=json.dumps({"label": [f"{OWNER_LABEL}={owner}"]}))
    pids = [int((await container.show())["State"]["Pid"]) for container in containers]
    ids = [container.id for container in containers]
    return _Idle(pids, processes_about(ids, processes_named(_SHIMS)))


def _processors(idle: _Idle) -> _Processors:
    return _Processors(
        sum(container_use(pid).cpu_s for pid in idle.pids),
        process_use((*processes_named(_DAEMONS), *idle.shims)).cpu_s,
    )


if __name__ == "__main__":
    print(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))).model_dump_json())
