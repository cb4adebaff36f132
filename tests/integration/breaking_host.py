"""A host program that kills itself with SIGKILL at a step of a session: run by the tests of recovery.

`python -m tests.integration.breaking_host TOOL STEP STATE KEY` runs a tool (`terminal`, `code`; with `!` behind it, as
an idempotent tool) under a key. It prints one JSON line at the beginning and, if it gets there, one with the result.
"""

import asyncio
import dataclasses
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aeolus_sandbox import (
    CodeInterpreterInput,
    CodeInterpreterTool,
    Manual,
    SessionManager,
    StreamingTool,
    TerminalInput,
    TerminalTool,
)
from aeolus_sandbox.storage.checkpoints import Checkpoints

STEPS = ("before_record", "before_start", "after_start", "mid_output", "before_store", "after_store")
INPUTS = {
    "terminal": TerminalInput(command="echo one; sleep 0.5; echo two", tty=False),
    "code": CodeInterpreterInput(code="import time; print('one'); time.sleep(0.5); print('two')"),
    "slow": TerminalInput(command="echo one; sleep 4; echo two", tty=False),
    "line": TerminalInput(command="echo one"),
}
"""The work: each prints `one` and (but for `line`) then `two`."""
TOOLS: dict[str, type[Any]] = {
    "terminal": TerminalTool,
    "code": CodeInterpreterTool,
    "slow": TerminalTool,
    "line": TerminalTool,
}


def tool_named(name: str, step: str = "") -> StreamingTool[Any, Any, Any]:
    """Return a tool that kills this process at a step; it counts its starts in `starts`."""
    base: Any = TOOLS[name.rstrip("!")]

    class Breaking(base):  # type: ignore[misc]
        idempotent = name.endswith("!")
        starts = 0

        async def start(self, tool_input: Any, context: Any) -> Any:
            self.starts += 1
            die_at("before_start", step)
            handle = await super().start(tool_input, context)
            die_at("after_start", step)
            if step == "pending_approval":  # while its output waits, it does not end
                handle = dataclasses.replace(handle, finalize=asyncio.sleep(3600))
            return dataclasses.replace(handle, chunks=_dying(handle.chunks, step))

    tool: StreamingTool[Any, Any, Any] = Breaking()
    return tool


def input_named(name: str) -> Any:
    """Return what the tool is given."""
    return INPUTS[name.rstrip("!")]


async def _dying(chunks: AsyncIterator[Any], step: str) -> AsyncIterator[Any]:
    async for chunk in chunks:
        yield chunk
        if "one" in chunk.as_text():
            die_at("mid_output", step)


class _BreakingCheckpoints(Checkpoints):
    step = ""

    async def claim(self, key: str, **fields: Any) -> Any:
        die_at("before_record", self.step)
        return await super().claim(key, **fields)

    async def store(self, key: str, **fields: Any) -> None:
        die_at("before_store", self.step)
        await super().store(key, **fields)
        die_at("after_store", self.step)


def die_at(here: str, step: str) -> None:
    """Kill this process if this is the step."""
    if here == step:
        os.kill(os.getpid(), signal.SIGKILL)


def say(**fields: Any) -> None:
    """Print one JSON line."""
    print(json.dumps(fields), flush=True)


async def _main(name: str, step: str, state: str, key: str) -> None:
    async with SessionManager(state_path=Path(state)) as manager:
        checkpoints = _BreakingCheckpoints(manager._database)
        checkpoints.step = step
        manager._runs.checkpoints = checkpoints
        say(owner=manager.owner)
        policy = Manual(timeout_s=600) if step == "pending_approval" else None
        async with await manager.open(
            tool_named(name, step), input_named(name), policy=policy, idempotency_key=key
        ) as session:
            if policy is not None:
                await session.next_chunk()
            async for chunk in session:
                say(text=chunk.as_text())
            result = await session.finalize()
            say(replay=session.is_replay, output=result.output)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
