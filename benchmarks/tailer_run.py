"""One reading of a log file by the log tailer, in a process of its own so that its peak memory is its own.

Usage: python -m benchmarks.tailer_run FILE FORMAT [LEVEL]; prints one JSON object.
"""

import asyncio
import sys
import time
from pathlib import Path

from pydantic import BaseModel

from aeolus_sandbox import (
    Grants,
    LogFilter,
    LogFormat,
    LogLevel,
    LogTailerInput,
    LogTailerTool,
    ReadLogs,
    SessionManager,
    Window,
)
from benchmarks.throughput_run import memory_bytes


class Reading(BaseModel):
    """What one reading gave."""

    seconds: float
    """From the opening of the session to its last line."""
    lines_read: int
    chunks: int
    """How many lines `next_chunk` gave."""
    growth_bytes: int | None
    """By how much the peak of this process's memory exceeds what it used before."""


async def read(file: Path, log_format: LogFormat, level: LogLevel | None) -> Reading:
    """Read a file to its end through `next_chunk`."""
    chunks = 0
    grants = Grants.of(ReadLogs(roots=[str(file.parent)]))
    async with SessionManager(grants=grants) as manager:
        asked = LogTailerInput(path=str(file), format=log_format, filter=LogFilter(level=level))
        before = memory_bytes("VmRSS")
        began = time.perf_counter()
        policy = Window(max_chunks=10_000, wait_for_reader=True)
        async with await manager.open(LogTailerTool(), asked, policy=policy) as session:
            while await session.next_chunk() is not None:
                chunks += 1
            seconds = time.perf_counter() - began
            result = await session.finalize()
        after = memory_bytes("VmHWM")
    assert result.status.ok, result.as_text()
    assert chunks == result.lines_matched, (chunks, result)
    growth = None if before is None or after is None else max(0, after - before)
    return Reading(seconds=seconds, lines_read=result.lines_read, chunks=chunks, growth_bytes=growth)


if __name__ == "__main__":
    _, path, kind, *rest = sys.argv
    print(
        asyncio.run(read(Path(path), LogFormat(kind), LogLevel(rest[0]) if rest else None)).model_dump_json()
    )
