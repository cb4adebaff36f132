"""How far the reader of a recorded run came is kept, and the next attempt begins there; nothing is taken for read."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from aeolus_sandbox import (
    OutputChunk,
    SessionManager,
    StorageError,
    StreamingTool,
    StreamingToolHandle,
    Summarise,
    SummaryChunk,
    ToolContext,
    Window,
)
from aeolus_sandbox.storage.checkpoints import Checkpoints, Claimed, Running, Stored
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.schema import MIGRATIONS
from aeolus_sandbox.streaming import progress as progress_module

PATIENCE_S = 30
WAITS = Window(max_chunks=5, wait_for_reader=True)


class _Range(BaseModel):
    upto: int = 100


class _Number(OutputChunk):
    number: int


class _Last(BaseModel):
    began_after: str | None


class _Counter(StreamingTool[_Range, _Number, _Last]):
    """Counts from where an earlier attempt's reader came to."""

    name: ClassVar[str] = "counter"
    description: ClassVar[str] = "Counts."
    Input = _Range
    OutputChunk = _Number
    Final = _Last
    policy = WAITS
    idempotent = True

    def __init__(self, *, failure: Exception | None = None) -> None:
        self.failure = failure
        """What goes wrong after the first chunk."""
        self.began_after: list[str | None] = []
        self.asked: list[OutputChunk] = []
        self.cannot_tell = False

    def after(self, chunk: _Number) -> str:
        self.asked.append(chunk)
        if self.cannot_tell:
            raise LookupError("no place")
        return str(chunk.number)

    async def start(self, tool_input: _Range, context: ToolContext) -> StreamingToolHandle[_Number, _Last]:
        begin = context.progress
        self.began_after.append(begin)

        async def chunks() -> AsyncIterator[_Number]:
            for number in range(0 if begin is None else int(begin) + 1, tool_input.upto):
                if handle.cancel.is_cancelled:
                    return
                yield _Number(number=number)
                if self.failure is not None:
                    raise self.failure

        async def result() -> _Last:
            return _Last(began_after=begin)

        handle = StreamingToolHandle(chunks=chunks(), finalize=result(), progress=self)
        return handle


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def manager(state: Path) -> AsyncIterator[SessionManager]:
    async with asyncio.timeout(PATIENCE_S), SessionManager(state_path=state) as opened:
        yield opened


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "PROGRESS_EVERY_S", 0.01)


@pytest.fixture
async def runs(state: Path) -> AsyncIterator[Checkpoints]:
    database = Database(state)
    yield Checkpoints(database)
    await database.aclose()


async def _until(met: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not met():  # noqa: ASYNC110 - many things are waited for
            await asyncio.sleep(0.01)


async def _stored(runs: Checkpoints, wanted: str | None) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (run := await runs.get("key")) is None or run.progress != wanted:  # noqa: ASYNC110 - it is in a file
            await asyncio.sleep(0.01)


async def _read(session: Any, count: int) -> list[int]:
    return [(await session.next_chunk()).number for _ in range(count)]


@pytest.mark.usefixtures("_often")
async def test_what_the_reader_is_done_with_is_written_down_while_the_tool_runs(
    manager: SessionManager, runs: Checkpoints
) -> None:
    async with await manager.open(_Counter(), _Range(), idempotency_key="key") as session:
        await _stored(runs, None)
        assert await _read(session, 4) == [0, 1, 2, 3]
        await _stored(runs, "2")  # the last one is in the reader's hands
        waiting = [chunk.number async for chunk in session]
        assert waiting == list(range(4, 100))
        await session.finalize()
    run = await runs.get("key")
    assert run is not None
    assert run.state == "done"


async def test_next_attempt_begins_after_what_the_reader_was_done_with(manager: SessionManager) -> None:
    tool = _Counter()
    for first in (0, 2, 4):  # each attempt reads three, and the last of them is not known to be dealt with
        async with await manager.open(tool, _Range(), idempotency_key="key") as session:
            assert await _read(session, 3) == [first, first + 1, first + 2]
    async with await manager.open(tool, _Range(), idempotency_key="key") as session:
        assert [chunk.number async for chunk in session] == list(range(6, 100))
        assert await session.finalize() == _Last(began_after="5")
    assert tool.began_after == [None, "1", "3", "5"]
    async with await manager.open(tool, _Range(), idempotency_key="key") as session:
        assert session.is_replay
        assert await session.next_chunk() is None
    assert len(tool.began_after) == 4


async def test_attempt_that_read_nothing_leaves_the_earlier_progress(manager: SessionManager) -> None:
    tool = _Counter()
    async with await manager.open(tool, _Range(), idempotency_key="key") as session:
        await _read(session, 3)
    async with await manager.open(tool, _Range(), idempotency_key="key"):
        pass
    async with await manager.open(tool, _Range(), idempotency_key="key") as session:
        assert await _read(session, 1) == [2]


async def test_second_session_of_a_key_waits_and_goes_on_where_the_first_stopped(
    manager: SessionManager,
) -> None:
    tool = _Counter()
    first = await manager.open(tool, _Range(), idempotency_key="key")
    await _read(first, 3)
    async with asyncio.TaskGroup() as group:
        opening = group.create_task(manager.open(tool, _Range(), idempotency_key="key"))
        await asyncio.sleep(0.05)
        assert not opening.done()
        await first.aclose()
    async with opening.result() as second:
        assert await _read(second, 2) == [2, 3]


async def test_tool_that_fails_ends_and_keeps_the_progress(
    manager: SessionManager, runs: Checkpoints
) -> None:
    tool = _Counter()
    async with await manager.open(tool, _Range(), idempotency_key="key") as session:
        await _read(session, 3)
    tool.failure = ValueError("broken")
    async with await manager.open(tool, _Range(), idempotency_key="key") as session:
        with pytest.raises(ValueError, match="broken"):
            await session.finalize()
    await _stored(runs, "1")


@pytest.mark.usefixtures("_often")
async def test_tool_that_cannot_tell_its_place_runs_to_its_end(
    manager: SessionManager, caplog: pytest.LogCaptureFixture
) -> None:
    tool = _Counter()
    tool.cannot_tell = True
    with caplog.at_level(logging.WARNING):
        async with await manager.open(tool, _Range(), idempotency_key="key") as session:
            await _read(session, 3)
            await _until(lambda: len(tool.asked) >= 3)
            assert len([chunk async for chunk in session]) == 97
            assert await session.finalize() == _Last(began_after=None)
    assert [record.message for record in caplog.records] == [
        "the progress of the run 'key' is not recorded: LookupError('no place')"
    ]


@pytest.mark.usefixtures("_often")
async def test_progress_that_cannot_be_stored_is_tried_again(
    manager: SessionManager, runs: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[str] = []
    store = Checkpoints.store_progress

    async def failing(self: Checkpoints, key: str, **fields: Any) -> None:
        if len(failures) < 3:
            failures.append(key)
            raise StorageError("no room")
        await store(self, key, **fields)

    monkeypatch.setattr(Checkpoints, "store_progress", failing)
    async with await manager.open(_Counter(), _Range(), idempotency_key="key") as session:
        await _read(session, 3)
        await _stored(runs, "1")
    assert len(failures) == 3


class _Model:
    async def complete(self, *, system: str, prompt: str, max_tokens: int) -> str:
        return "Numbers."


async def test_summary_is_not_taken_for_a_chunk_of_the_tool(state: Path) -> None:
    tool = _Counter()
    async with (
        asyncio.timeout(PATIENCE_S),
        SessionManager(state_path=state, text_model=lambda _: _Model()) as manager,
    ):
        policy = Summarise(chunk_threshold=100, max_summary_length=50)
        async with await manager.open(tool, _Range(), idempotency_key="key", policy=policy) as session:
            chunks = [chunk async for chunk in session]
            assert await session.finalize() == _Last(began_after=None)
    assert any(isinstance(chunk, SummaryChunk) for chunk in chunks)
    assert not any(isinstance(chunk, SummaryChunk) for chunk in tool.asked)


async def _claim(runs: Checkpoints, owner: str) -> Claimed | Stored | Running:
    return await runs.claim("key", tool_name="t", input_hash="h", owner=owner, may_repeat=True)


async def test_progress_of_a_run_that_was_taken_over_counts_no_more(runs: Checkpoints) -> None:
    assert await _claim(runs, "old") == Claimed(1)
    await runs.store_progress("key", owner="old", attempt=1, progress="ten \udc80")
    seen = await _claim(runs, "new")
    assert isinstance(seen, Running)
    assert await runs.take_over("key", seen=seen, owner="new", may_repeat=True) == Claimed(2, "ten \udc80")
    await runs.store_progress("key", owner="new", attempt=2, progress="twenty")
    await runs.store_progress("key", owner="old", attempt=1, progress="eleven")
    await runs.store_progress("key", owner="new", attempt=1, progress="twelve")
    run = await runs.get("key")
    assert run is not None
    assert run.progress == "twenty"


@pytest.mark.parametrize("end", ["store", "give_up"])
async def test_progress_of_a_run_that_has_ended_counts_no_more(runs: Checkpoints, end: str) -> None:
    await _claim(runs, "one")
    await runs.store_progress("key", owner="one", attempt=1, progress="ten")
    final = {"final": "{}"} if end == "store" else {}
    await getattr(runs, end)("key", owner="one", attempt=1, **final)
    await runs.store_progress("key", owner="one", attempt=1, progress="eleven")
    run = await runs.get("key")
    assert run is not None
    assert run.progress == "ten"
    assert await _claim(runs, "two") == (Stored("{}") if end == "store" else Claimed(2, "ten"))


async def test_state_file_of_the_first_version_is_opened_and_keeps_its_runs(state: Path) -> None:
    connection = sqlite3.connect(state, isolation_level=None)
    for statement in _FIRST_VERSION:
        connection.execute(statement)
    connection.close()
    database = Database(state)
    runs = Checkpoints(database)
    try:
        done, running = await runs.get("done"), await runs.get("key")
        assert done is not None
        assert running is not None
        assert (done.state, done.final, done.progress, done.attempts) == ("done", '{"a":1}', None, 3)
        assert (running.state, running.owner, running.beat, running.progress) == ("running", "gone", 7, None)
        taken = await runs.take_over("key", seen=Running("gone", 7), owner="new", may_repeat=True)
        assert taken == Claimed(2)
        await runs.store_progress("key", owner="new", attempt=2, progress="here")
        assert [(run.key, run.progress) for run in await runs.list()] == [("key", "here"), ("done", None)]
        version = await database.read(lambda transaction: transaction.row("PRAGMA user_version"))
        assert version == {"user_version": len(MIGRATIONS)}
    finally:
        await database.aclose()


_FIRST_VERSION = (
    """
    CREATE TABLE checkpoints (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, tool_name TEXT NOT NULL,
        input_hash TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('running', 'done', 'interrupted')),
        owner TEXT NOT NULL, attempts INTEGER NOT NULL, beat INTEGER NOT NULL, created_at TEXT NOT NULL,
        ended_at TEXT CHECK ((state = 'running') = (ended_at IS NULL)),
        final BLOB CHECK ((state = 'done') = (final IS NOT NULL))
    )
    """,
    "CREATE INDEX running_checkpoints ON checkpoints (owner) WHERE state = 'running'",
    """
    CREATE TABLE approvals (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, run_key TEXT NOT NULL,
        chunk INTEGER NOT NULL, session_id TEXT NOT NULL, tool_name TEXT NOT NULL, content_hash TEXT NOT NULL,
        approvers TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('pending', 'decided', 'used', 'timed_out', 'withdrawn')),
        owner TEXT NOT NULL, timeout_s REAL NOT NULL, created_at TEXT NOT NULL, decided_at TEXT,
        decision TEXT CHECK (decision IS NOT NULL OR state NOT IN ('decided', 'used')),
        preview BLOB NOT NULL, text BLOB NOT NULL
    )
    """,
    "CREATE INDEX approvals_by_state ON approvals (state, sequence)",
    """
    CREATE UNIQUE INDEX open_approvals ON approvals (run_key, chunk, content_hash)
    WHERE state IN ('pending', 'decided')
    """,
    """
    INSERT INTO checkpoints VALUES
    (1, 'done', 't', 'h', 'done', 'gone', 3, 9, '2024-05-01T10:00:00.000000+00:00', '2024-05-01T10:00:05.000000+00:00',
     CAST('{"a":1}' AS BLOB)),
    (2, 'key', 't', 'h', 'running', 'gone', 1, 7, '2024-05-01T10:00:00.000000+00:00', NULL, NULL)
    """,
    f"PRAGMA application_id = {int.from_bytes(b'Aeol')}",
    "PRAGMA user_version = 1",
)
"""A state file as the first version of the schema left it."""
