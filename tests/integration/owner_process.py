"""A host program that opens sessions and then ends in some way: run by the tests of orphans.

It prints one JSON line about its containers once they run, and then does what its second argument says.
"""

import asyncio
import atexit
import gc
import json
import os
import sys

from aeolus_sandbox import (
    IsolationMode,
    SessionManager,
    StreamingToolSession,
    TerminalChunk,
    TerminalInput,
    TerminalResult,
    TerminalTool,
)


class BugInUserCode(Exception):
    """What an embedding program may raise at any time."""


async def _open(manager: SessionManager, kind: str) -> StreamingToolSession[TerminalChunk, TerminalResult]:
    tool = TerminalTool(
        isolation=IsolationMode.GVISOR if kind.startswith("gvisor") else IsolationMode.CONTAINER
    )
    tool_input = TerminalInput(command="echo up; sleep 300; :", tty=kind.endswith("tty"))
    session = await manager.open(tool, tool_input)
    chunk = await session.next_chunk()
    assert chunk is not None
    assert chunk.text.strip() == "up"
    return session


def _fork() -> None:
    child = os.fork()
    if child == 0:
        # What a worker of multiprocessing does, and then what a program does that ends in the usual way. (To raise
        # SystemExit through the coroutines of a running loop is what nobody survives: the two share one epoll.)
        atexit._run_exitfuncs()
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)


async def _fill_pool(manager: SessionManager) -> None:
    for tty in (True, False):
        await manager.pool.keep(TerminalTool(), TerminalInput(command="true", tty=tty), minimum=2)
    await manager.pool.wait_filled()
    print("filled", flush=True)


async def _end(manager: SessionManager, manner: str) -> None:
    if manner == "raise":
        raise BugInUserCode
    if manner == "pool":
        await _fill_pool(manager)
    if manner == "fork":
        _fork()
        print("forked", flush=True)
    if manner == "exit":
        os._exit(3)
    await asyncio.sleep(600)


async def _main(kinds: list[str], manner: str) -> None:
    async with SessionManager() as manager:
        sessions = [await _open(manager, kind) for kind in kinds]
        told = {"owner": manager.owner, "sessions": [session.id for session in sessions]}
        print(json.dumps(told), flush=True)
        await _end(manager, manner)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1].split(","), sys.argv[2]))
