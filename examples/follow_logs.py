"""A log is followed while it is written and rotated: errors alone, and then on from where it was left."""
# ruff: noqa: T201

import asyncio
import json
import tempfile
from pathlib import Path

from aeolus_sandbox import (
    Grants,
    LogCursor,
    LogFilter,
    LogLevel,
    LogTailerInput,
    LogTailerTool,
    ReadLogs,
    SessionManager,
)


def write(log: Path, *messages: str) -> None:
    """Append to a log as a program would."""
    with log.open("a") as file:
        for message in messages:
            level = "error" if "failed" in message else "info"
            file.write(json.dumps({"level": level, "time": "2024-03-10T09:15:02Z", "msg": message}) + "\n")


def rotate(log: Path) -> None:
    """Rotate a log as logrotate(8) would."""
    log.rename(log.with_name(f"{log.name}.1"))
    write(log, "started anew", "upload failed")


async def follow(manager: SessionManager, log: Path) -> LogCursor:
    """Follow the log through a rotation, until two errors were seen; return where to go on."""
    errors = LogTailerInput(path=str(log), follow=True, filter=LogFilter(level=LogLevel.ERROR), timeout_s=60)
    async with await manager.open(LogTailerTool(), errors) as session:
        seen = 0
        async for chunk in session:
            if chunk.notice is not None:
                print("notice:", chunk.notice.kind)
                continue
            print(chunk.timestamp, chunk.level, chunk.message)
            seen += 1
            if seen == 1:
                rotate(log)
            else:
                await session.cancel()
        return (await session.finalize()).cursor


async def read(log: Path) -> None:
    """Follow the log for a while, and later go on."""
    async with SessionManager(grants=Grants.of(ReadLogs(roots=[str(log.parent)]))) as manager:
        cursor = await follow(manager, log)
        write(log, "stopped")
        rest = LogTailerInput(path=str(log), from_cursor=cursor)
        async with await manager.open(LogTailerTool(), rest) as session:
            async for chunk in session:
                print("since then:", chunk.message)


def main() -> None:
    """Write a log, and read it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the container's user has to get in
        log = Path(folder).resolve() / "app.log"
        write(log, "started", "payment failed", "went on")
        asyncio.run(read(log))


if __name__ == "__main__":
    main()
