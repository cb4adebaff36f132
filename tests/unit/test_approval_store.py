"""What waits for a decision, what a decision counts for, and that it counts once."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.errors import ApprovalNotFound, StorageError
from aeolus_sandbox.storage.approvals import ApprovalStore
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.records import Approval
from aeolus_sandbox.streaming.approval import ApprovalRequest, Approve, Decision, Deny, Edit

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
YES = Approve(by="role:admin")
LIMIT_S = 60

any_text = st.text(st.characters() | st.sampled_from("\0\ud800\udfff\x1b"), max_size=200)


class Clock:
    """A wall clock that somebody sets."""

    def __init__(self) -> None:
        self.time = NOON

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with asyncio.timeout(LIMIT_S), aclosing(Database(tmp_path / "state.db")) as opened:
        yield opened


@pytest.fixture
async def store(database: Database, clock: Clock) -> ApprovalStore:
    return ApprovalStore(database, now=clock)


def request(**changed: Any) -> ApprovalRequest:
    fields: dict[str, Any] = {
        "run_key": "run",
        "sequence": 0,
        "session_id": "session",
        "tool_name": "tool",
        "approvers": ("role:admin", "role:security"),
        "text": "the whole text",
        "preview": "the … text",
        "timeout_s": 300.0,
    }
    return ApprovalRequest(**(fields | changed))


async def add(store: ApprovalStore, *, owner: str = "us", **changed: Any) -> Approval:
    return await store.add(request(**changed), owner=owner)


async def state_of(store: ApprovalStore, approval: Approval) -> str:
    found = await store.get(approval.id)
    assert found
    return found.state


# Asking.


async def test_request_is_kept_whole(store: ApprovalStore) -> None:
    asked = request(sequence=-1)
    approval = await store.add(asked, owner="us")
    assert await store.get(approval.id) == approval
    for name in (
        "run_key",
        "session_id",
        "tool_name",
        "approvers",
        "text",
        "preview",
        "timeout_s",
        "content_hash",
    ):
        assert getattr(approval, name) == getattr(asked, name)
    assert (approval.chunk, approval.owner, approval.state) == (-1, "us", "pending")
    assert (approval.decision, approval.created_at, approval.decided_at) == (None, NOON, None)


async def test_same_text_of_a_run_that_started_again_is_asked_for_once(store: ApprovalStore) -> None:
    first = await add(store)
    second = await add(store, owner="others", session_id="second")
    assert (second.id, second.owner, second.session_id) == (first.id, "others", "second")
    assert await store.list() == [second]


async def test_decision_that_was_not_used_counts_for_the_run_that_started_again(store: ApprovalStore) -> None:
    first = await add(store)
    await store.decide(first.id, YES)
    second = await add(store, owner="others")
    assert (second.id, second.state, second.decision) == (first.id, "decided", YES)
    assert await store.use(second.id) == YES


@pytest.mark.parametrize("changed", [{"run_key": "other"}, {"sequence": 1}, {"text": "the whole text "}])
async def test_decision_counts_for_its_own_text_alone(store: ApprovalStore, changed: dict[str, Any]) -> None:
    first = await add(store)
    await store.decide(first.id, YES)
    other = await add(store, **changed)
    assert (other.state, other.decision) == ("pending", None)
    assert await state_of(store, first) == "decided"


async def test_decision_does_not_count_where_other_people_are_asked(store: ApprovalStore) -> None:
    first = await add(store)
    await store.decide(first.id, YES)
    other = await add(store, approvers=("role:owner",))
    assert (other.state, other.decision, other.approvers) == ("pending", None, ("role:owner",))
    assert await state_of(store, first) == "withdrawn"
    assert await store.use(first.id) is None


@pytest.mark.parametrize("end", ["used", "timed_out", "withdrawn"])
async def test_what_is_over_is_asked_for_again(store: ApprovalStore, end: str) -> None:
    first = await add(store)
    if end == "used":
        await store.decide(first.id, YES)
        await store.use(first.id)
    elif end == "timed_out":
        await store.expire(first.id)
    else:
        await store.withdraw(first.id)
    assert await state_of(store, first) == end
    second = await add(store)
    assert second.id != first.id
    assert (second.state, second.decision) == ("pending", None)
    assert await state_of(store, first) == end


# Deciding.


@pytest.mark.parametrize("decision", [YES, Edit(by="me", text="[redacted]"), Deny(by="me", reason="no")])
async def test_decision_is_used_once(store: ApprovalStore, decision: Decision) -> None:
    approval = await add(store)
    assert await store.use(approval.id) is None
    assert await store.decide(approval.id, decision) is True
    assert await state_of(store, approval) == "decided"
    assert await store.use(approval.id) == decision
    assert await store.use(approval.id) is None
    assert await state_of(store, approval) == "used"


async def test_first_decision_stands(store: ApprovalStore, clock: Clock) -> None:
    approval = await add(store)
    clock.time += timedelta(minutes=1)
    no = Deny(by="me")
    assert await store.decide(approval.id, no) is True
    clock.time += timedelta(minutes=1)
    assert await store.decide(approval.id, YES) is False
    found = await store.find(approval.id)
    assert (found.decision, found.decided_at) == (no, NOON + timedelta(minutes=1))
    assert await store.use(approval.id) == no
    assert await store.decide(approval.id, YES) is False


@pytest.mark.parametrize("end", ["expire", "withdraw"])
async def test_what_is_over_cannot_be_decided(store: ApprovalStore, end: str) -> None:
    approval = await add(store)
    await getattr(store, end)(approval.id)
    assert await store.decide(approval.id, YES) is False
    assert await store.use(approval.id) is None
    assert await store.list() == []


async def test_decision_of_the_last_moment_counts_instead_of_the_timeout(store: ApprovalStore) -> None:
    approval = await add(store)
    await store.decide(approval.id, YES)
    assert await store.expire(approval.id) == YES
    assert await store.expire(approval.id) is None
    assert await state_of(store, approval) == "used"


async def test_withdrawing_does_not_undo_a_decision(store: ApprovalStore) -> None:
    approval = await add(store)
    await store.decide(approval.id, YES)
    await store.withdraw(approval.id)
    assert await state_of(store, approval) == "decided"


# Finding.


async def test_beginning_of_an_id_stands_for_it_while_no_other_has_it(store: ApprovalStore) -> None:
    first, second = await add(store), await add(store, sequence=1)
    differs = next(i for i, (a, b) in enumerate(zip(first.id, second.id, strict=True)) if a != b)
    assert await store.find(first.id[: differs + 1]) == first
    assert await store.decide(second.id[: differs + 1], YES) is True
    assert await state_of(store, first) == "pending"
    for beginning in (first.id[:differs], first.id[:4]):
        with pytest.raises(ApprovalNotFound, match="more than one"):
            await store.decide(beginning, YES)


async def test_what_is_over_keeps_its_id(store: ApprovalStore) -> None:
    """Somebody has it on the screen still: its beginning must not come to mean another text."""
    first = await add(store)
    await store.withdraw(first.id)
    await add(store, sequence=1)
    with pytest.raises(ApprovalNotFound, match="more than one"):
        await store.decide(first.id[:4], YES)


@pytest.mark.parametrize("name", ["", "%", "____", "*", "0", "zzzz", "zz\0z", "\udcff" * 4, "' OR 1=1 --"])
async def test_what_is_no_id_is_not_found(store: ApprovalStore, name: str) -> None:
    await add(store)
    with pytest.raises(ApprovalNotFound, match="no approval's id"):
        await store.decide(name, YES)


async def test_three_characters_are_too_few(store: ApprovalStore) -> None:
    approval = await add(store)
    with pytest.raises(ApprovalNotFound, match="at least 4"):
        await store.decide(approval.id[:3], YES)
    assert await store.decide(approval.id[:4], YES) is True


async def test_pending_ones_are_listed_oldest_first_whatever_the_clock_does(
    store: ApprovalStore, clock: Clock
) -> None:
    added = []
    for sequence in range(4):
        added.append(await add(store, sequence=sequence))
        clock.time -= timedelta(hours=1)
    await store.withdraw(added[1].id)
    assert [approval.chunk for approval in await store.list()] == [0, 2, 3]
    assert [approval.chunk for approval in await store.list(limit=2)] == [0, 2]
    assert [approval.chunk for approval in await store.list(state=None)] == [0, 1, 2, 3]
    assert [approval.chunk for approval in await store.list(state="withdrawn")] == [1]


async def test_old_ones_are_removed_and_pending_ones_never(store: ApprovalStore, clock: Clock) -> None:
    pending, withdrawn, decided_late = [await add(store, sequence=number) for number in range(3)]
    await store.withdraw(withdrawn.id)
    clock.time += timedelta(days=1)
    await store.decide(decided_late.id, YES)
    before = NOON + timedelta(hours=1)
    assert await store.prune(before=before, dry_run=True) == [withdrawn.id]
    assert len(await store.list(state=None)) == 3
    assert await store.prune(before=before) == [withdrawn.id]
    assert [approval.id for approval in await store.list(state=None)] == [pending.id, decided_late.id]


# What is in it.


@settings(max_examples=40, deadline=None)
@given(text=any_text, edited=any_text)
def test_any_text_comes_back_as_it_was(text: str, edited: str) -> None:
    async def use() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with asyncio.timeout(LIMIT_S), aclosing(Database(Path(folder) / "state.db")) as database:
                store = ApprovalStore(database)
                approval = await add(store, text=text, preview=text[:10], approvers=("rôle", ""))
                assert (approval.text, approval.preview, approval.approvers) == (
                    text,
                    text[:10],
                    ("rôle", ""),
                )
                decision = Edit(by="me", text=edited)
                await store.decide(approval.id, decision)
                assert await store.use(approval.id) == decision

    asyncio.run(use())


async def test_decision_that_cannot_be_read_does_not_show_its_text_and_stays(
    store: ApprovalStore, database: Database
) -> None:
    approval = await add(store)
    await store.decide(approval.id, YES)
    newer = '{"kind": "edit", "by": "me", "text": "PASSWORD", "unknown": 1}'
    change = "UPDATE approvals SET decision = :decision"
    await database.write(lambda transaction: transaction.change(change, decision=newer))
    with pytest.raises(StorageError) as caught:
        await store.use(approval.id)
    assert "PASSWORD" not in f"{caught.value}{caught.value.__cause__}"
    assert caught.value.__suppress_context__
    states = await database.read(lambda transaction: transaction.rows("SELECT state FROM approvals"))
    assert states == [{"state": "decided"}]
