"""Another process that uses a state file, and how a test talks to it: a JSON line each way."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aeolus_sandbox.errors import AeolusError
from aeolus_sandbox.storage.approvals import ApprovalStore
from aeolus_sandbox.storage.checkpoints import Checkpoints, Claimed
from aeolus_sandbox.storage.database import Database

REPOSITORY = Path(__file__).resolve().parents[2]


class StorageProcess:
    """The process, as a test sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin
        assert process.stdout
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    async def send(self, *command: object) -> None:
        self._stdin.write(json.dumps(command).encode() + b"\n")
        await self._stdin.drain()

    async def answer(self) -> Any:
        line = await self._stdout.readline()
        assert line, "the process has ended"
        return json.loads(line)

    async def ask(self, *command: object) -> Any:
        await self.send(*command)
        return await self.answer()

    async def kill(self) -> list[Any]:
        """Kill it with SIGKILL, and return what it had still said."""
        self._process.kill()
        rest = await self._stdout.read()
        await self._process.wait()
        return [json.loads(line) for line in rest.splitlines()]

    async def end(self) -> None:
        self._stdin.close()
        await self._process.wait()


@asynccontextmanager
async def storage_process(path: Path, *, wrapper: tuple[str, ...] = ()) -> AsyncIterator[StorageProcess]:
    """Start a process on a state file; the wrapper is a command that runs a command."""
    process = await asyncio.create_subprocess_exec(
        *wrapper,
        sys.executable,
        "-m",
        "tests.unit.storage_process",
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
    )
    started = StorageProcess(process)
    try:
        yield started
        await started.end()
    finally:
        if process.returncode is None:
            await started.kill()


# The other side.


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def _open(database: Database) -> int:
    row = await database.read(lambda transaction: transaction.row("PRAGMA user_version"))
    assert row
    return int(row["user_version"])


async def _claim(database: Database, key: str, owner: str) -> str:
    runs = Checkpoints(database)
    outcome = await runs.claim(key, tool_name="tool", input_hash="hash", owner=owner, may_repeat=True)
    return type(outcome).__name__


async def _write(database: Database, prefix: str, count: int) -> None:
    """Store checkpoints one after the other, and say the key of each that is stored."""
    runs = Checkpoints(database)
    for number in range(count):
        key = f"{prefix}-{number}"
        claimed = await runs.claim(key, tool_name="tool", input_hash="hash", owner=prefix, may_repeat=False)
        assert isinstance(claimed, Claimed)
        await runs.store(key, owner=prefix, attempt=claimed.attempt, final=json.dumps(key))
        _say(key)


async def _keys(database: Database) -> list[str]:
    return [run.key for run in await Checkpoints(database).list(state="done", limit=10_000)]


async def _use(database: Database, approval: str) -> str | None:
    decision = await ApprovalStore(database).use(approval)
    return None if decision is None else decision.by


async def _ballast(database: Database, size: int) -> None:
    (database.path.parent / "ballast").write_bytes(bytes(size))


async def _lock(database: Database) -> None:
    """Hold the file locked, as another program could, until the next line comes."""
    connection = sqlite3.connect(database.path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    _say("locked")
    sys.stdin.readline()
    connection.close()


_COMMANDS: dict[str, Callable[..., Awaitable[object]]] = {
    "open": _open,
    "claim": _claim,
    "write": _write,
    "keys": _keys,
    "use": _use,
    "ballast": _ballast,
    "lock": _lock,
}


async def _serve(path: Path) -> None:
    database = Database(path)
    for line in iter(sys.stdin.readline, ""):
        name, *arguments = json.loads(line)
        try:
            _say(await _COMMANDS[name](database, *arguments))
        except AeolusError as error:
            _say({"error": type(error).__name__, "message": str(error)})
    await database.aclose()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
