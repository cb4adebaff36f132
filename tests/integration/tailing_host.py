"""A host program that follows a log file until it is killed: run by the tests of the log tailer.

`python -m tests.integration.tailing_host LOG STATE KEY` prints one JSON line for each line of the log.
"""

import asyncio
import json
import sys
from pathlib import Path

from aeolus_sandbox import SessionManager
from aeolus_sandbox.capabilities import Grants, ReadLogs
from aeolus_sandbox.tools.log_tailer import LogTailerInput, LogTailerTool


async def _main(log: str, state: str, key: str) -> None:
    grants = Grants.of(ReadLogs(roots=[str(Path(log).parent)]))
    async with (
        SessionManager(grants=grants, state_path=Path(state)) as manager,
        await manager.open(LogTailerTool(), tailed(log), idempotency_key=key) as session,
    ):
        async for chunk in session:
            print(json.dumps(chunk.message), flush=True)
            await asyncio.sleep(0.002)


def tailed(log: str) -> LogTailerInput:
    """Return what is read."""
    return LogTailerInput(path=log, format="raw", follow=True)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
