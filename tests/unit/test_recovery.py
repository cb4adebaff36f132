"""A run with a key is done once: its result is stored and returned, also to those who wait for it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, SecretStr

from aeolus_sandbox import (
    CancelToken,
    CheckpointBusy,
    CheckpointConflict,
    ConfigurationError,
    EngineUnavailable,
    ExitStatus,
    Limits,
    OutputChunk,
    Redact,
    RunInterrupted,
    SessionManager,
    Stop,
    StorageError,
    StorageFull,
    StreamingTool,
    StreamingToolHandle,
    ToolContext,
    idempotency,
)
from aeolus_sandbox.idempotency import input_hash
from aeolus_sandbox.storage.checkpoints import Checkpoints
from aeolus_sandbox.storage.database import Database

PATIENCE_S = 20


class _Order(BaseModel):
    text: str = "done"
    wait: bool = False
    timeout_s: float | None = None


class _Said(OutputChunk):
    text: str


class _Bill(BaseModel):
    text: str
    status: ExitStatus


class _Worker(StreamingTool[_Order, _Said, _Bill]):
    """Says its text; waits to be told to end where the order says so."""

    name: ClassVar[str] = "worker"
    description: ClassVar[str] = "Work."
    Input = _Order
    OutputChunk = _Said
    Final = _Bill

    def __init__(self, *, idempotent: bool = True, failure: Exception | None = None) -> None:
        self.idempotent = idempotent
        self.failure = failure
        self.starts = 0
        self.go = asyncio.Event()

    async def start(self, tool_input: _Order, context: ToolContext) -> StreamingToolHandle[_Said, _Bill]:
        self.starts += 1
        if self.failure is not None:
            raise self.failure
        stopped: list[Stop] = []

        async def stop(why: Stop) -> None:
            stopped.append(why)
            self.go.set()

        async def chunks() -> AsyncIterator[_Said]:
            yield _Said(text=tool_input.text)
            if tool_input.wait:
                await self.go.wait()

        async def result() -> _Bill:
            reason = stopped[0].reason if stopped else "exited"
            return _Bill(text=tool_input.text, status=ExitStatus(reason=reason))

        return StreamingToolHandle(chunks=chunks(), finalize=result(), cancel=CancelToken(stop))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.db"


@pytest.fixture
async def manager(state: Path) -> AsyncIterator[SessionManager]:
    async with asyncio.timeout(PATIENCE_S), SessionManager(state_path=state) as opened:
        yield opened


async def _bill(manager: SessionManager, tool: _Worker, order: _Order, key: str | None = "key") -> _Bill:
    async with await manager.open(tool, order, idempotency_key=key) as session:
        return await session.finalize()


async def test_the_same_key_gives_the_stored_result_and_nothing_runs(state: Path) -> None:
    tool = _Worker()
    async with SessionManager(state_path=state) as manager, await manager.open(tool, _Order()) as session:
        key = session.idempotency_key
        first = await session.finalize()
        assert not session.is_replay
    assert key is not None
    assert key[14] == "7"
    async with (
        SessionManager(state_path=state) as manager,
        await manager.open(tool, _Order(), idempotency_key=key) as session,
    ):
        assert session.is_replay
        assert session.idempotency_key == key
        assert await session.next_chunk() is None
        assert await session.finalize() == first
        assert session.status == first.status
    assert tool.starts == 1


async def test_without_a_key_nothing_is_recorded(manager: SessionManager, state: Path) -> None:
    async with await manager.open(_Worker(idempotent=False), _Order()) as session:
        await session.finalize()
        assert session.idempotency_key is None
    assert not state.exists()


async def test_a_key_makes_a_tool_that_is_not_idempotent_run_at_most_once(manager: SessionManager) -> None:
    tool = _Worker(idempotent=False)
    assert await _bill(manager, tool, _Order()) == await _bill(manager, tool, _Order())
    assert tool.starts == 1


async def test_another_input_or_tool_under_a_key_is_a_conflict(manager: SessionManager) -> None:
    class Other(_Worker):
        name: ClassVar[str] = "other"

    await _bill(manager, _Worker(), _Order())
    other = Other()
    for tool, order in ((_Worker(), _Order(text="something else")), (other, _Order())):
        with pytest.raises(CheckpointConflict):
            await manager.open(tool, order, idempotency_key="key")
        assert tool.starts == 0


@pytest.mark.parametrize("key", ["", "a" * 201, "with\nline"])
async def test_a_key_that_cannot_be_a_label_is_refused(manager: SessionManager, key: str) -> None:
    with pytest.raises(ConfigurationError):
        await manager.open(_Worker(), _Order(), idempotency_key=key)


@pytest.mark.parametrize("failure", [EngineUnavailable("no engine"), ConfigurationError("wrong")])
async def test_a_run_that_could_not_start_is_as_if_it_had_never_been(
    manager: SessionManager, failure: Exception
) -> None:
    with pytest.raises(type(failure)):
        await manager.open(_Worker(failure=failure), _Order(), idempotency_key="key")
    tool = _Worker(idempotent=False)
    await _bill(manager, tool, _Order())
    assert tool.starts == 1


async def test_a_start_that_failed_in_the_middle_is_not_repeated_silently(manager: SessionManager) -> None:
    with pytest.raises(RuntimeError):
        await manager.open(_Worker(idempotent=False, failure=RuntimeError()), _Order(), idempotency_key="key")
    with pytest.raises(RunInterrupted):
        await manager.open(_Worker(idempotent=False), _Order(), idempotency_key="key")
    await _bill(manager, _Worker(), _Order())  # as an idempotent tool it may


async def test_a_session_that_is_closed_before_its_end_has_no_result_that_counts(
    manager: SessionManager,
) -> None:
    order = _Order(wait=True)
    session = await manager.open(_Worker(), order, idempotency_key="key")
    await session.aclose()
    assert (await session.finalize()).status.reason == "cancelled"
    tool = _Worker()
    tool.go.set()
    assert (await _bill(manager, tool, order)).status.reason == "exited"
    assert tool.starts == 1


@pytest.mark.parametrize("how", ["cancelled", "timed_out"])
async def test_how_a_run_was_ended_is_a_result_that_counts(manager: SessionManager, how: str) -> None:
    order = _Order(wait=True, timeout_s=0.05 if how == "timed_out" else None)
    async with await manager.open(_Worker(), order, idempotency_key="key") as session:
        if how == "cancelled":
            await session.cancel()
        first = await session.finalize()
    assert first.status.reason == how
    tool = _Worker()
    assert await _bill(manager, tool, order) == first
    assert tool.starts == 0


async def test_a_second_session_of_a_key_waits_for_the_first_ones_result(manager: SessionManager) -> None:
    tool, other, order = _Worker(), _Worker(), _Order(wait=True)
    async with (
        await manager.open(tool, order, idempotency_key="key") as session,
        asyncio.TaskGroup() as group,
    ):
        waiting = group.create_task(_bill(manager, other, order))
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert not waiting.done()
        tool.go.set()
        assert await waiting == await session.finalize()
    assert other.starts == 0


async def test_waiting_for_another_run_has_a_limit(manager: SessionManager) -> None:
    order = _Order(wait=True)
    async with await manager.open(_Worker(), order, idempotency_key="key"):
        with pytest.raises(CheckpointBusy):
            await manager.open(_Worker(), order, limits=Limits(wall_time_s=0.3), idempotency_key="key")


async def test_a_caller_who_is_cancelled_while_waiting_leaves_nothing(manager: SessionManager) -> None:
    tool, order = _Worker(), _Order(wait=True)
    async with await manager.open(tool, order, idempotency_key="key") as session:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await manager.open(_Worker(), order, idempotency_key="key")
        tool.go.set()
        await session.finalize()
    assert (await _bill(manager, _Worker(), order)).text == "done"


@pytest.mark.parametrize("delay", range(12))
async def test_a_caller_who_is_cancelled_at_any_moment_of_opening_leaves_the_key_free(
    manager: SessionManager, delay: int
) -> None:
    async with asyncio.TaskGroup() as group:
        opening = group.create_task(manager.open(_Worker(), _Order(wait=True), idempotency_key="key"))
        for _ in range(delay):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
    tool = _Worker()
    tool.go.set()
    assert (await _bill(manager, tool, _Order(wait=True))).status.reason == "exited"


async def test_a_run_whose_owner_gives_no_sign_of_life_is_taken_over(
    manager: SessionManager, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "LEASE_S", 0.1)
    database = Database(state)
    elsewhere = "another-boot-1:1:1:nonce"  # a process of another machine: nobody here can look for it
    try:
        await Checkpoints(database).claim(
            "key", tool_name="worker", input_hash=input_hash(_Order()), owner=elsewhere, may_repeat=True
        )
        tool = _Worker()
        assert (await _bill(manager, tool, _Order())).text == "done"
        assert tool.starts == 1
    finally:
        await database.aclose()


async def test_signs_of_life_keep_a_run_from_being_taken_over(
    manager: SessionManager, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "BEAT_S", 0.02)
    order = _Order(wait=True)
    database = Database(state)
    checkpoints = Checkpoints(database)
    try:
        async with await manager.open(_Worker(), order, idempotency_key="key"):
            beats: set[int] = set()
            async with asyncio.timeout(PATIENCE_S):
                while len(beats) < 3:
                    checkpoint = await checkpoints.get("key")
                    assert checkpoint is not None
                    beats.add(checkpoint.beat)
    finally:
        await database.aclose()


async def test_a_result_that_was_taken_over_is_not_the_one_that_counts(
    manager: SessionManager, state: Path
) -> None:
    order = _Order(wait=True)
    tool = _Worker()
    database = Database(state)
    checkpoints = Checkpoints(database)
    try:
        async with await manager.open(tool, order, idempotency_key="key") as session:
            seen = await checkpoints.claim(
                "key", tool_name="worker", input_hash=input_hash(order), owner="b", may_repeat=True
            )
            assert await checkpoints.take_over("key", seen=seen, owner="b", may_repeat=True)  # type: ignore[arg-type]
            tool.go.set()
            with pytest.raises(CheckpointConflict):
                await session.finalize()
    finally:
        await database.aclose()


class _FullThenNot(Checkpoints):
    """A store whose disk is full for a while."""

    full = True

    async def store(self, key: str, **fields: Any) -> None:
        if self.full:
            raise StorageFull("no room")
        await super().store(key, **fields)


async def test_a_result_that_could_not_be_stored_is_an_error_and_is_stored_by_the_next_try(
    manager: SessionManager,
) -> None:
    checkpoints = _FullThenNot(manager._database)
    manager._runs.checkpoints = checkpoints
    async with await manager.open(_Worker(), _Order(), idempotency_key="key") as session:
        for _ in range(2):
            with pytest.raises(StorageFull):
                await session.finalize()
        checkpoints.full = False
        assert (await session.finalize()).text == "done"
    tool = _Worker()
    await _bill(manager, tool, _Order())
    assert tool.starts == 0


async def test_nothing_runs_that_cannot_be_recorded(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    state.write_text("this is no database, and it is long enough to be seen as something else" * 10)
    tool = _Worker()
    async with SessionManager(state_path=state) as manager:
        with pytest.raises(StorageError, match=r"state\.db") as caught:
            await manager.open(tool, _Order(), idempotency_key="key")
    assert caught.value.code == "storage"
    assert tool.starts == 0


async def test_no_secret_is_in_a_stored_result(state: Path) -> None:
    filters = [Redact(values=(SecretStr("hunter2hunter2"),))]
    order = _Order(text="it is hunter2hunter2")
    async with SessionManager(state_path=state, filters=filters) as manager:
        assert (await _bill(manager, _Worker(), order)).text == "it is [redacted]"
    for file in state.parent.iterdir():
        assert b"hunter2hunter2" not in file.read_bytes()


def test_inputs_are_the_same_by_their_content(tmp_path: Path) -> None:
    class Files(BaseModel):
        files: dict[str, bytes | Path] = {}
        names: frozenset[str] = frozenset()
        secret: SecretStr = SecretStr("")

    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("same")
    two.write_text("same")
    assert input_hash(Files(files={"a": one})) == input_hash(Files(files={"a": two}))
    two.write_text("other")
    assert input_hash(Files(files={"a": one})) != input_hash(Files(files={"a": two}))
    assert input_hash(Files(files={"a": one, "b": b"\xff"})) == input_hash(
        Files(files={"b": b"\xff", "a": one})
    )
    assert input_hash(Files(names=frozenset("abc"))) == input_hash(Files(names=frozenset("cba")))
    assert input_hash(Files(secret=SecretStr("a"))) != input_hash(Files(secret=SecretStr("b")))
