"""The state file when several processes use it, when they are killed, and when its disk fails."""

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from aeolus_sandbox.errors import StorageBusy
from aeolus_sandbox.storage.approvals import ApprovalStore
from aeolus_sandbox.storage.checkpoints import Checkpoints
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.schema import MIGRATIONS
from aeolus_sandbox.streaming.approval import ApprovalRequest, Approve
from tests.unit.storage_process import StorageProcess, storage_process

LIMIT_S = 90.0

needs_mounts = pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system of its own")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def two(path: Path) -> AsyncIterator[tuple[StorageProcess, StorageProcess]]:
    async with asyncio.timeout(LIMIT_S), storage_process(path) as one, storage_process(path) as other:
        yield one, other


def with_mount(mount: str, *folder: Path) -> tuple[str, ...]:
    """Return a command that runs a command where something is mounted that nobody else sees."""
    namespace = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-rm")
    script = f'folder=$1; shift; {mount} && exec "$@"'
    return (*namespace, "sh", "-ec", script, "sh", *map(str, folder))


async def acknowledged(process: StorageProcess) -> list[str]:
    keys = []
    while isinstance(answer := await process.answer(), str):
        keys.append(answer)
    assert answer is None, answer
    return keys


async def test_eight_writers_and_a_reader_lose_nothing(path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), AsyncExitStack() as stack:
        writers = [await stack.enter_async_context(storage_process(path)) for _ in range(8)]
        for number, writer in enumerate(writers):
            await writer.send("write", f"writer{number}", 200)
        async with aclosing(Database(path)) as database, asyncio.TaskGroup() as group:
            tasks = [group.create_task(acknowledged(writer)) for writer in writers]
            seen = 0
            while not all(task.done() for task in tasks):
                count = len(await Checkpoints(database).list(limit=10_000))
                assert count >= seen
                seen = count
        async with aclosing(Database(path)) as database:
            runs = await Checkpoints(database).list(state="done", limit=10_000)
    expected = {f"writer{writer}-{number}" for writer in range(8) for number in range(200)}
    assert len(runs) == 1_600
    assert {run.key for run in runs} == expected == {key for task in tasks for key in task.result()}


async def test_writer_killed_at_any_moment_has_lost_nothing_that_it_acknowledged(path: Path) -> None:
    acknowledged_keys: set[str] = set()
    for number in range(20):
        async with asyncio.timeout(LIMIT_S), storage_process(path) as writer:
            await writer.send("write", f"writer{number}", 100_000)
            keys = {await writer.answer() for _ in range(1 + number * 3)}
            acknowledged_keys |= keys | set(await writer.kill())
        async with aclosing(Database(path)) as database:
            stored = {run.key for run in await Checkpoints(database).list(state="done", limit=1_000_000)}
            whole = await database.read(lambda transaction: transaction.row("PRAGMA integrity_check"))
        assert acknowledged_keys <= stored
        assert whole == {"integrity_check": "ok"}


async def test_one_key_is_claimed_by_one_of_two_processes(two: tuple[StorageProcess, StorageProcess]) -> None:
    for number in range(60):
        for owner, process in enumerate(two):
            await process.send("claim", f"key{number}", f"owner{owner}")
        assert sorted([await process.answer() for process in two]) == ["Claimed", "Running"]


async def test_one_decision_is_used_by_one_of_two_processes(
    path: Path, two: tuple[StorageProcess, StorageProcess]
) -> None:
    async with aclosing(Database(path)) as database:
        store = ApprovalStore(database)
        for number in range(40):
            approval = await store.add(request(number), owner="owner")
            await store.decide(approval.id, Approve(by="somebody"))
            for process in two:
                await process.send("use", approval.id)
            answers = [await process.answer() for process in two]
            assert answers.count("somebody") == answers.count(None) == 1


async def test_two_processes_make_the_file_at_once(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / str(number) / "state.db"
        async with asyncio.timeout(LIMIT_S), storage_process(path) as one, storage_process(path) as other:
            await one.send("open")
            await other.send("open")
            assert await one.answer() == await other.answer() == len(MIGRATIONS)
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.close()


async def test_many_in_one_process_make_the_file_at_once(tmp_path: Path) -> None:
    for number in range(10):
        databases = [Database(tmp_path / str(number) / "state.db") for _ in range(6)]
        async with asyncio.timeout(LIMIT_S), AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            for owner, database in enumerate(databases):
                await stack.enter_async_context(aclosing(database))
                key, runs = f"key{owner}", Checkpoints(database)
                claim = runs.claim(key, tool_name="t", input_hash="h", owner="o", may_repeat=True)
                group.create_task(claim)
        async with aclosing(Database(databases[0].path)) as database:
            assert len(await Checkpoints(database).list()) == 6


async def test_locked_file_is_busy_and_works_when_the_lock_is_gone(path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), aclosing(Database(path, busy_timeout_s=0.2)) as database:
        runs = Checkpoints(database)
        await runs.beat("nobody")
        async with storage_process(path) as other:
            assert await other.ask("lock") == "locked"
            with pytest.raises(StorageBusy, match=r"state\.db") as caught:
                await runs.claim("key", tool_name="tool", input_hash="hash", owner="owner", may_repeat=True)
            assert caught.value.retryable
            assert await runs.list() == []  # readers do not wait
            await other.ask("unlock")
        await runs.claim("key", tool_name="tool", input_hash="hash", owner="owner", may_repeat=True)


async def test_writer_waits_while_another_process_holds_the_lock(path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), aclosing(Database(path, busy_timeout_s=LIMIT_S)) as database:
        runs = Checkpoints(database)
        await runs.beat("nobody")
        async with storage_process(path) as other, asyncio.TaskGroup() as group:
            assert await other.ask("lock") == "locked"
            claim = runs.claim("key", tool_name="tool", input_hash="hash", owner="owner", may_repeat=True)
            claiming = group.create_task(claim)
            assert await runs_in_the_meantime(claiming)
            await other.ask("unlock")
        assert [run.key for run in await runs.list()] == ["key"]


async def runs_in_the_meantime(task: asyncio.Task[object]) -> bool:
    """Let everybody else run for a while, and return whether the task still goes on."""
    await asyncio.wait([task], timeout=0.05)
    return not task.done()


@needs_mounts
async def test_full_disk_loses_nothing_and_works_again_when_there_is_room(tmp_path: Path) -> None:
    wrapper = with_mount('mount -t tmpfs -o size=256k none "$folder"', tmp_path)
    async with asyncio.timeout(LIMIT_S), storage_process(tmp_path / "state.db", wrapper=wrapper) as writer:
        assert await writer.ask("ballast", 64 * 1024) is None
        await writer.send("write", "before", 10_000)
        keys = []
        while isinstance(answer := await writer.answer(), str):
            keys.append(answer)
        assert answer["error"] == "StorageFull"
        assert str(tmp_path) in answer["message"]
        assert keys
        assert set(await writer.ask("keys")) == set(keys)
        assert await writer.ask("ballast", 0) is None
        await writer.send("write", "after", 1)
        assert await acknowledged(writer) == ["after-0"]
        assert set(await writer.ask("keys")) == {*keys, "after-0"}
        assert list(tmp_path.iterdir()) == []  # it was a disk of its own


@needs_mounts
async def test_read_only_file_says_so_and_is_not_touched(path: Path) -> None:
    async with aclosing(Database(path)) as database:
        claim = Checkpoints(database).claim("k", tool_name="t", input_hash="h", owner="o", may_repeat=True)
        await claim
    before = path.read_bytes()
    mount = 'mount --bind "$folder" "$folder" && mount -o remount,bind,ro "$folder"'
    wrapper = with_mount(mount, path.parent)
    async with asyncio.timeout(LIMIT_S), storage_process(path, wrapper=wrapper) as writer:
        answer = await writer.ask("claim", "other", "owner")
    assert answer["error"] == "StorageError"
    assert repr(str(path)) in answer["message"]
    assert "writable" in answer["message"]
    assert path.read_bytes() == before


def request(sequence: int) -> ApprovalRequest:
    return ApprovalRequest(
        run_key="run",
        sequence=sequence,
        session_id="session",
        tool_name="tool",
        approvers=("role:admin",),
        text="text",
        preview="text",
        timeout_s=300,
    )
