"""One run of the throughput benchmark, in a process of its own so that its peak memory is its own.

Usage: python -m benchmarks.throughput_run READER zeros|lines BYTES [CPUS]; prints one JSON object.
READER: window, buffer, summarise, manual (a session with this policy), bare (aiodocker), cli (docker).
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import aiodocker
from pydantic import BaseModel, ByteSize

from aeolus_sandbox import (
    Buffer,
    Limits,
    Manual,
    SessionManager,
    Summarise,
    TerminalInput,
    TerminalTool,
    Window,
)
from aeolus_sandbox.approvers import CallbackApprover
from aeolus_sandbox.streaming.chunks import OutputChunk, SummaryChunk
from aeolus_sandbox.streaming.policies.base import Policy
from benchmarks.bare import config_of, started

COMMANDS = {
    "zeros": r"head -c %d /dev/zero | tr '\0' x",
    "lines": "yes 'a line of output of sixty-four characters, its newline included' | head -c %d",
}
"""What is written: one endless line, or lines."""
POLICIES: Final[dict[str, Policy]] = {
    "window": Window(),
    "buffer": Buffer(),
    "summarise": Summarise(model="bench/none"),
    "manual": Manual(),
}
_PIPE_BYTES: Final = 2**20


class Measured(BaseModel):
    """What one run gave."""

    seconds: float
    """From the first piece to the last; where nothing comes before the end, from the opening of the session."""
    bytes_read: int
    bytes_dropped: int = 0
    """What the policy dropped, because the reader was slower than the command."""
    growth_bytes: int | None = None
    """By how much the peak of this process's memory exceeds what it used before."""


class _Clock:
    """From the first piece to the last, and how much has come between them."""

    def __init__(self) -> None:
        self.bytes_read = self.bytes_dropped = 0
        self._began: float | None = None
        self._ended: float | None = None
        self._before = memory_bytes("VmRSS")
        self._after: int | None = None

    def start(self) -> None:
        """Start now, and not with the first piece."""
        self._began = time.perf_counter()

    def note(self, read: int, dropped: int = 0) -> None:
        """Note that a piece has come."""
        self._began = self._began or time.perf_counter()
        self._ended = time.perf_counter()
        self.bytes_read += read
        self.bytes_dropped += dropped

    def stop(self) -> None:
        """Note this process's memory at its highest."""
        self._after = memory_bytes("VmHWM")

    def measured(self) -> Measured:
        """Return what was measured."""
        assert self._began is not None, "there was no output"
        assert self._ended is not None, "there was no output"
        growth = None
        if self._before is not None and self._after is not None:
            growth = max(0, self._after - self._before)
        return Measured(
            seconds=self._ended - self._began,
            bytes_read=self.bytes_read,
            bytes_dropped=self.bytes_dropped,
            growth_bytes=growth,
        )


class _Brief:
    """A language model that answers at once, so that what is measured is ours."""

    async def complete(self, *, system: str, prompt: str, max_tokens: int) -> str:
        """Return always the same summary."""
        return "many lines of output"


async def through_session(policy: str, command: str, size: int, *, cpus: float = 1.0) -> Measured:
    """Read a command's output through a session."""
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(output_bytes=ByteSize(2 * size if policy == "buffer" else 2**26), cpus=cpus)
        approver = CallbackApprover(lambda _: True)
        manager = SessionManager(
            limits=limits,
            approver=approver,
            text_model=lambda _: _Brief(),
            state_path=Path(folder) / "state.db",
        )
        async with manager:
            return await _read(manager, POLICIES[policy], command)


async def _read(manager: SessionManager, policy: Policy, command: str) -> Measured:
    # What a manager starts once (its guard, its first look for leftovers) is no part of what a session carries.
    first = await manager.open(TerminalTool(), TerminalInput(command="true", tty=False))
    await first.finalize()
    clock = _Clock()
    async with await manager.open(
        TerminalTool(), TerminalInput(command=command, tty=False), policy=policy
    ) as session:
        if not isinstance(policy, Window):
            clock.start()
        async for chunk in session:
            piece: OutputChunk = chunk
            if isinstance(piece, SummaryChunk):
                clock.note(0)
                clock.bytes_read = sum(span.end - span.start for span in piece.covers)
            else:
                clock.note(len(chunk.data), chunk.dropped_bytes)
        result = await session.finalize()
        clock.stop()
    assert result.status.ok, result.as_text()
    return clock.measured()


async def through_aiodocker(command: str) -> Measured:
    """Read a command's output with aiodocker's own stream."""
    async with aiodocker.Docker() as docker:
        async with started(docker, config_of("shell", ("true",), tty=False)) as stream:
            await stream.read_out()
        clock = _Clock()
        async with started(docker, config_of("shell", ("sh", "-c", command), tty=False)) as stream:
            while (message := await stream.read_out()) is not None:
                clock.note(len(message.data))
            clock.stop()
    return clock.measured()


async def through_cli(command: str) -> Measured:
    """Read a command's output from `docker start --attach`; this process's memory is not the client's."""
    async with aiodocker.Docker() as docker:
        container = await docker.containers.create(config_of("shell", ("sh", "-c", command), tty=False))
        try:
            return await asyncio.to_thread(_attached, ("docker", "start", "--attach", container.id))
        finally:
            await container.delete(force=True, v=True)


def _attached(argv: Iterable[str]) -> Measured:
    clock = _Clock()
    with subprocess.Popen(list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        while piece := os.read(client.stdout.fileno(), _PIPE_BYTES):
            clock.note(len(piece))
    assert client.returncode == 0, client.returncode
    return clock.measured()


def memory_bytes(field: str) -> int | None:
    """Return a field of this process's proc_pid_status(5); None where there is no such file."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(f"{field}:"))


async def _run(reader: str, command: str, size: int, cpus: float) -> Measured:
    match reader:
        case "bare":
            return await through_aiodocker(command)
        case "cli":
            return await through_cli(command)
        case _:
            return await through_session(reader, command, size, cpus=cpus)


if __name__ == "__main__":
    _, who, what, amount, *rest = sys.argv
    measured = asyncio.run(
        _run(who, COMMANDS[what] % int(amount), int(amount), float(rest[0]) if rest else 1.0)
    )
    assert measured.bytes_read + measured.bytes_dropped == int(amount), measured
    print(measured.model_dump_json())
