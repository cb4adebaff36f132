"""The desk: a decision counts for one text of one run, once, wherever it was made and whoever died meanwhile."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aeolus_sandbox.approvers import ApprovalDesk, CallbackApprover
from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import ApprovalDenied, ApprovalTimedOut, StorageError
from aeolus_sandbox.storage.approvals import ApprovalStore
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.records import Approval
from aeolus_sandbox.streaming.approval import ApprovalRequest, Approve, Approver, Decision, Deny
from aeolus_sandbox.streaming.policies import Manual, PolicyView
from aeolus_sandbox.streaming.spool import Spool
from aeolus_sandbox.tools.terminal.models import TerminalChunk, TerminalCodec
from tests.unit.policy_contexts import policy_context

LIMIT_S = 30
YES = Approve(by="cli")
NO = Deny(by="cli", reason="no")


def _request(text: str = "the text", **fields: Any) -> ApprovalRequest:
    defaults: dict[str, Any] = {
        "run_key": "run",
        "sequence": 0,
        "session_id": "session",
        "tool_name": "tool",
        "approvers": ("role:admin",),
        "text": text,
        "preview": text,
        "timeout_s": 60.0,
    }
    return ApprovalRequest(**(defaults | fields))


class _Silent:
    """Never decides; notes that it was asked, and that it was told not to bother."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def decide(self, request: ApprovalRequest) -> Decision:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        raise AssertionError


def _unasked(request: ApprovalRequest) -> bool:
    raise AssertionError("nobody should be asked")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ApprovalStore]:
    database = Database(tmp_path / "state.db")
    yield ApprovalStore(database)
    await database.aclose()


@pytest.fixture
async def elsewhere(tmp_path: Path) -> AsyncIterator[ApprovalStore]:
    """The same state file, as another process has it."""
    database = Database(tmp_path / "state.db")
    yield ApprovalStore(database)
    await database.aclose()


def _desk(store: ApprovalStore, approver: Approver | None = None) -> ApprovalDesk:
    return ApprovalDesk(store, approver, owner="me", poll_s=0.01)


async def _wait_pending(store: ApprovalStore) -> Approval:
    async with asyncio.timeout(LIMIT_S):
        while not (pending := await store.list()):  # noqa: ASYNC110 - another process may write it
            await asyncio.sleep(0.01)
    return pending[0]


async def _state(store: ApprovalStore, **filters: Any) -> list[str]:
    return [approval.state for approval in await store.list(state=None, **filters)]


async def test_the_approvers_decision_is_written_down_and_used(store: ApprovalStore) -> None:
    async with asyncio.timeout(LIMIT_S):
        decision = await _desk(store, CallbackApprover(lambda _: True, "rule")).decide(_request())
    assert decision == Approve(by="rule")
    (approval,) = await store.list(state=None)
    assert (approval.state, approval.decision, approval.owner) == ("used", decision, "me")


@pytest.mark.parametrize("has_approver", [True, False], ids=["beside an approver", "without an approver"])
async def test_another_process_can_decide(
    has_approver: bool, store: ApprovalStore, elsewhere: ApprovalStore
) -> None:
    silent = _Silent()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        deciding = group.create_task(_desk(store, silent if has_approver else None).decide(_request()))
        pending = await _wait_pending(elsewhere)
        if has_approver:
            await silent.asked.wait()
        assert await elsewhere.decide(pending.id, NO)
        assert await deciding == NO
        if has_approver:
            assert silent.cancelled.is_set()
    assert await _state(store) == ["used"]


async def test_of_two_decisions_the_first_counts(store: ApprovalStore, elsewhere: ApprovalStore) -> None:
    async def late(request: ApprovalRequest) -> bool:
        assert await elsewhere.decide((await _wait_pending(elsewhere)).id, NO)
        return True

    async with asyncio.timeout(LIMIT_S):
        assert await _desk(store, CallbackApprover(late)).decide(_request()) == NO


async def test_a_decision_is_used_once(store: ApprovalStore) -> None:
    asked = list[str]()

    def decide(request: ApprovalRequest) -> bool:
        asked.append(request.text)
        return True

    desk = _desk(store, CallbackApprover(decide))
    async with asyncio.timeout(LIMIT_S):
        await desk.decide(_request())
        await desk.decide(_request())
    assert asked == ["the text", "the text"]
    assert await _state(store) == ["used", "used"]


async def test_of_two_runs_that_wait_for_the_same_decision_one_gets_it(
    store: ApprovalStore, elsewhere: ApprovalStore
) -> None:
    outcomes = list[object]()

    async def run(desk: ApprovalDesk) -> None:
        try:
            outcomes.append(await desk.decide(_request()))
        except ApprovalDenied as error:
            outcomes.append(error)

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        silent = [_Silent(), _Silent()]
        group.create_task(run(_desk(store, silent[0])))
        group.create_task(run(_desk(elsewhere, silent[1])))
        for each in silent:
            await each.asked.wait()
        assert await store.decide((await _wait_pending(store)).id, YES)
    assert outcomes.count(YES) == 1
    (other,) = [outcome for outcome in outcomes if outcome != YES]
    assert isinstance(other, ApprovalDenied)
    assert "another process" in str(other)


@pytest.mark.parametrize(
    "other",
    [
        {"text": "another text"},
        {"sequence": 1},
        {"run_key": "another run"},
        {"beyond_text": "another image"},
        {"approvers": ("role:other",)},
    ],
    ids=lambda other: "another " + next(iter(other)),
)
async def test_a_decision_counts_for_its_text_its_place_and_its_run_alone(
    other: dict[str, Any], store: ApprovalStore, elsewhere: ApprovalStore
) -> None:
    approval = await elsewhere.add(_request(), owner="gone")
    assert await elsewhere.decide(approval.id, YES)
    async with asyncio.timeout(LIMIT_S):
        assert await _desk(store, CallbackApprover(lambda _: False, "me")).decide(_request(**other)) == Deny(
            by="me"
        )
        if "approvers" not in other:
            assert await _desk(store, CallbackApprover(_unasked)).decide(_request()) == YES


async def test_cancelled_it_stays_pending_for_the_next_run(store: ApprovalStore) -> None:
    silent = _Silent()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        deciding = group.create_task(_desk(store, silent).decide(_request()))
        await silent.asked.wait()
        deciding.cancel()
        await asyncio.wait([deciding])
        assert silent.cancelled.is_set()
        assert await _state(store) == ["pending"]
        assert await _desk(store, CallbackApprover(lambda _: True, "next")).decide(_request()) == Approve(
            by="next"
        )
    assert await _state(store) == ["used"]


async def _given_up(desk: ApprovalDesk, silent: _Silent) -> None:
    """Ask, and stop waiting while the question is pending."""
    async with asyncio.TaskGroup() as group:
        deciding = group.create_task(desk.decide(_request()))
        await silent.asked.wait()
        deciding.cancel()


async def test_over_time_it_is_noted_and_nothing_counts_any_more(store: ApprovalStore) -> None:
    silent = _Silent()
    desk = _desk(store, silent)
    async with asyncio.timeout(LIMIT_S):
        await _given_up(desk, silent)
        (pending,) = await store.list()
        assert await desk.expire(_request()) is None
        assert await _state(store) == ["timed_out"]
        assert not await store.decide(pending.id, YES)
        assert await desk.expire(_request()) is None


async def test_a_decision_at_the_last_moment_counts(store: ApprovalStore, elsewhere: ApprovalStore) -> None:
    silent = _Silent()
    desk = _desk(store, silent)
    async with asyncio.timeout(LIMIT_S):
        await _given_up(desk, silent)
        assert await elsewhere.decide((await _wait_pending(elsewhere)).id, YES)
        assert await desk.expire(_request()) == YES
    assert await _state(store) == ["used"]


class _SlowToUse(ApprovalStore):
    """Says when a decision is being used, and then takes its time."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.using = asyncio.Event()
        self.go_on = asyncio.Event()

    async def use(self, id: str) -> Decision | None:  # noqa: A002
        decision = await super().use(id)
        self.using.set()
        await self.go_on.wait()
        return decision


async def test_a_decision_that_is_used_while_the_time_runs_out_is_not_lost(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    store = _SlowToUse(database)
    desk = _desk(store, CallbackApprover(lambda _: True, "me"))
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        deciding = group.create_task(desk.decide(_request()))
        await store.using.wait()
        deciding.cancel()
        await asyncio.sleep(0)
        store.go_on.set()
        await asyncio.wait([deciding])
        assert deciding.cancelled()
        assert await desk.expire(_request()) == Approve(by="me")
        assert await desk.expire(_request()) is None
    await database.aclose()


async def test_what_is_withdrawn_cannot_be_decided(store: ApprovalStore) -> None:
    silent = _Silent()
    desk = _desk(store, silent)
    async with asyncio.timeout(LIMIT_S):
        await _given_up(desk, silent)
        await desk.withdraw(_request())
        assert await _state(store) == ["withdrawn"]
        await desk.withdraw(_request())  # without effect


@pytest.mark.parametrize("wrong", [RuntimeError("the text is in here"), None], ids=repr)
async def test_an_approver_that_fails_denies_and_is_logged_without_the_text(
    wrong: Exception | None, store: ApprovalStore, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong:
        async def decide(self, request: ApprovalRequest) -> Any:
            if wrong is not None:
                raise wrong

    async with asyncio.timeout(LIMIT_S):
        decision = await _desk(store, Wrong()).decide(_request())
    assert isinstance(decision, Deny)
    assert not decision.answered
    assert "the text" not in caplog.text + decision.reason
    assert wrong is None or "RuntimeError" in caplog.text


async def test_nobody_is_asked_about_what_cannot_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_text("not a database " * 100)
    database = Database(path)
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(StorageError):
            await _desk(ApprovalStore(database), CallbackApprover(_unasked)).decide(_request())
    await database.aclose()


# With `Manual`.


def _view(desk: ApprovalDesk, tasks: BackgroundTasks, policy: Manual, text: bytes) -> PolicyView[Any]:
    codec = TerminalCodec()
    spool: Spool[TerminalChunk] = Spool(codec, capacity_bytes=1000)
    spool.append(*codec.encode(TerminalChunk(stream="stdout", data=text)))
    spool.end()
    return policy.view(spool, policy_context(run_key="the run", tasks=tasks, approvals=desk))


async def test_a_denial_and_a_time_out_are_different_outcomes(store: ApprovalStore) -> None:
    tasks, silent = BackgroundTasks(), _Silent()
    no = _view(_desk(store, CallbackApprover(lambda _: False)), tasks, Manual(), b"a")
    late = _view(_desk(store, silent), tasks, Manual(timeout_s=0.2), b"b")
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(ApprovalDenied) as denied:
            await no.next_chunk()
        with pytest.raises(ApprovalTimedOut) as timed_out:
            await late.next_chunk()
        await tasks.aclose(timeout_s=1)
    assert not isinstance(denied.value, ApprovalTimedOut)
    assert not isinstance(timed_out.value, ApprovalDenied)
    assert denied.value.code != timed_out.value.code
    assert await _state(store) == ["used", "timed_out"]


CHILD = """
import asyncio, sys
from pathlib import Path
from aeolus_sandbox.approvers import ApprovalDesk
from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.storage.approvals import ApprovalStore
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.streaming.policies import Manual
from tests.unit.test_approval_desk import _view

async def main():
    desk = ApprovalDesk(ApprovalStore(Database(Path(sys.argv[1]))), None, owner="the child")
    await _view(desk, BackgroundTasks(), Manual(), b"the output").next_chunk()

asyncio.run(main())
"""


async def test_a_question_survives_the_death_of_its_process_and_its_answer_counts_in_the_next_run(
    store: ApprovalStore, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path / "state.db")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as child:
        try:
            pending = await _wait_pending(store)
        finally:
            child.kill()
    assert (pending.owner, pending.text) == ("the child", "the output")
    assert [approval.id for approval in await store.list()] == [pending.id]
    assert await store.decide(pending.id, YES)
    tasks, desk = BackgroundTasks(), _desk(store, CallbackApprover(_unasked))
    async with asyncio.timeout(LIMIT_S):
        chunk = await _view(desk, tasks, Manual(), b"the output").next_chunk()
        assert chunk is not None
        assert chunk.text == "the output"
        again = _view(_desk(store, CallbackApprover(lambda _: False)), tasks, Manual(), b"the output")
        with pytest.raises(ApprovalDenied):  # it was used
            await again.next_chunk()
        await tasks.aclose(timeout_s=1)
