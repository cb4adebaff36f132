"""One run of the throughput benchmark, in a process of its own so that its peak memory is its own.

Usage: python -m benchmarks.throughput_run session|bare zeros|lines BYTES; prints one JSON object.
"""

import asyncio
import sys
import time
from pathlib import Path

import aiodocker
from pydantic import BaseModel

from aeolus_sandbox import SessionManager, TerminalInput, TerminalTool, Window
from benchmarks.bare import config_of, started

COMMANDS = {
    "zeros": r"head -c %d /dev/zero | tr '\0' x",
    "lines": "yes 'a line of output of sixty-four characters, its newline included' | head -c %d",
}
"""What is written: one endless line, or lines."""


class Measured(BaseModel):
    """What one run gave."""

    seconds: float
    """From the first piece to the last."""
    bytes_read: int
    bytes_dropped: int = 0
    """What the policy dropped, because the reader was slower than the command."""
    growth_bytes: int | None = None
    """By how much the peak of this process's memory exceeds what it used before."""


async def through_session(command: str) -> Measured:
    """Read a command's output through a session with `Window`."""
    began = ended = None
    bytes_read = bytes_dropped = 0
    async with SessionManager() as manager:
        # What a manager starts once (its guard, its first look for leftovers) is no part of what a session carries.
        first = await manager.open(TerminalTool(), TerminalInput(command="true", tty=False))
        await first.finalize()
        before = memory_bytes("VmRSS")
        opening = manager.open(TerminalTool(), TerminalInput(command=command, tty=False), policy=Window())
        async with await opening as session:
            async for chunk in session:
                began = began or time.perf_counter()
                bytes_read += len(chunk.data)
                bytes_dropped += chunk.dropped_bytes
                ended = time.perf_counter()
            result = await session.finalize()
            after = memory_bytes("VmHWM")
    assert result.status.ok, result.as_text()
    return _measured(began, ended, bytes_read, bytes_dropped, before, after)


async def through_aiodocker(command: str) -> Measured:
    """Read a command's output with aiodocker's own stream."""
    began = ended = None
    bytes_read = 0
    async with aiodocker.Docker() as docker:
        async with started(docker, config_of("shell", ("true",), tty=False)) as stream:
            await stream.read_out()
        config = config_of("shell", ("sh", "-c", command), tty=False)
        before = memory_bytes("VmRSS")
        async with started(docker, config) as stream:
            while (message := await stream.read_out()) is not None:
                began = began or time.perf_counter()
                bytes_read += len(message.data)
                ended = time.perf_counter()
            after = memory_bytes("VmHWM")
    return _measured(began, ended, bytes_read, 0, before, after)


def memory_bytes(field: str) -> int | None:
    """Return a field of this process's proc_pid_status(5); None where there is no such file."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(f"{field}:"))


def _measured(
    began: float | None,
    ended: float | None,
    bytes_read: int,
    bytes_dropped: int,
    before: int | None,
    after: int | None,
) -> Measured:
    assert began is not None, "there was no output"
    assert ended is not None, "there was no output"
    growth = None if before is None or after is None else max(0, after - before)
    return Measured(
        seconds=ended - began, bytes_read=bytes_read, bytes_dropped=bytes_dropped, growth_bytes=growth
    )


if __name__ == "__main__":
    _, who, what, size = sys.argv
    run = {"session": through_session, "bare": through_aiodocker}[who]
    measured = asyncio.run(run(COMMANDS[what] % int(size)))
    assert measured.bytes_read + measured.bytes_dropped == int(size), measured
    print(measured.model_dump_json())
