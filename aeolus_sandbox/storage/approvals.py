"""Which texts wait for a decision, and what was decided.

The texts can hold secrets: the file is for its user alone (see `database`), and no error shows a text.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from aeolus_sandbox.errors import ApprovalNotFound, StorageError
from aeolus_sandbox.identifiers import new_identifier
from aeolus_sandbox.storage.columns import (
    moment_from_column,
    moment_to_column,
    text_from_column,
    text_to_column,
    utc_now,
)
from aeolus_sandbox.storage.database import Database, Row, Transaction, Value
from aeolus_sandbox.storage.records import Approval, ApprovalState
from aeolus_sandbox.streaming.approval import ApprovalRequest, Decision

PREFIX_CHARACTERS: Final = 4
"""The shortest beginning of an id that stands for it."""

_DECISION: Final[TypeAdapter[Decision]] = TypeAdapter(Decision)

_Ids = list[str]

_SELECT: Final = "SELECT * FROM approvals WHERE id = :id"
_SELECT_OPEN: Final = """
SELECT id, approvers FROM approvals
WHERE run_key = :run_key AND chunk = :chunk AND content_hash = :content_hash AND state IN ('pending', 'decided')
"""
_SELECT_ALL: Final = "SELECT * FROM approvals ORDER BY sequence LIMIT :limit"
_SELECT_STATE: Final = "SELECT * FROM approvals WHERE state = :state ORDER BY sequence LIMIT :limit"
# What is over counts too: a beginning must never come to stand for another text than it did.
_SELECT_BEGINNING: Final = """
SELECT * FROM approvals WHERE id >= :beginning AND substr(id, 1, :length) = :beginning ORDER BY id LIMIT 2
"""
_ADOPT: Final = "UPDATE approvals SET owner = :owner, session_id = :session_id WHERE id = :id"
_INSERT: Final = """
INSERT INTO approvals (id, run_key, chunk, session_id, tool_name, content_hash, approvers, state, owner, timeout_s,
                       created_at, preview, text)
VALUES (:id, :run_key, :chunk, :session_id, :tool_name, :content_hash, :approvers, 'pending', :owner, :timeout_s,
        :now, :preview, :text)
"""
_DECIDE: Final = """
UPDATE approvals SET state = 'decided', decision = :decision, decided_at = :now WHERE id = :id AND state = 'pending'
"""
_MOVE: Final = "UPDATE approvals SET state = :after WHERE id = :id AND state = :before"
_SUPERSEDE: Final = "UPDATE approvals SET state = 'withdrawn' WHERE id = :id"
_OLD: Final = "FROM approvals WHERE state <> 'pending' AND coalesce(decided_at, created_at) < :before"


class ApprovalStore:
    """The approvals in a state file. All methods raise `StorageError` when the file cannot be used."""

    def __init__(self, database: Database, *, now: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._now = now

    async def add(self, request: ApprovalRequest, *, owner: str) -> Approval:
        """Keep a request, and return what is known of it.

        A run that was started again asks for the same text again: what is pending, or was decided and not used, then
        becomes the new owner's.

        Args:
            request: What is asked.
            owner: Who asks (see `sandboxes.owner.Owner`).

        Raises:
            StorageError: The file cannot be used; nothing is kept.
        """
        columns = _columns(request) | {"owner": owner}
        text = {name: columns[name] for name in ("run_key", "chunk", "content_hash")}

        def work(transaction: Transaction) -> Row | None:
            row = transaction.row(_SELECT_OPEN, **text)
            if row is not None and row["approvers"] != columns["approvers"]:
                # Boundary: a decision counts where the same people are asked: others cannot have made it.
                transaction.change(_SUPERSEDE, id=row["id"])
                row = None
            if row is not None:
                transaction.change(_ADOPT, id=row["id"], owner=owner, session_id=request.session_id)
                return transaction.row(_SELECT, id=row["id"])
            new = new_identifier()
            transaction.change(_INSERT, **columns, id=new, now=moment_to_column(self._now()))
            return transaction.row(_SELECT, id=new)

        row = await self._database.write(work)
        assert row is not None
        return _approval(row)

    async def get(self, id: str) -> Approval | None:  # noqa: A002 - what it is called everywhere
        """Return the approval of an id, or None."""
        row = await self._database.read(lambda transaction: transaction.row(_SELECT, id=id))
        return None if row is None else _approval(row)

    async def find(self, id: str) -> Approval:  # noqa: A002
        """Return the approval of an id, or of a beginning of an id that no other one has.

        Raises:
            ApprovalNotFound: There is none, or more than one.
            StorageError: The file cannot be used.
        """
        return _approval(await self._database.read(lambda transaction: _find(transaction, id)))

    async def list(self, *, state: ApprovalState | None = "pending", limit: int = 100) -> list[Approval]:
        """Return the oldest approvals in one state, or in any (None), oldest first."""
        query = _SELECT_ALL if state is None else _SELECT_STATE
        rows = await self._database.read(
            lambda transaction: transaction.rows(query, state=state, limit=limit)
        )
        return [_approval(row) for row in rows]

    async def decide(self, id: str, decision: Decision) -> bool:  # noqa: A002
        """Decide on what is pending, once; return False when it is not pending any more.

        Args:
            id: The id, or a beginning of it that no other one has.
            decision: What is decided.

        Raises:
            ApprovalNotFound: There is none of this id, or more than one.
            StorageError: The file cannot be used; nothing is decided.
        """
        # ASCII with escapes holds every text, lone surrogates too.
        column = json.dumps(decision.model_dump(mode="python"))

        def work(transaction: Transaction) -> bool:
            found = _find(transaction, id)
            now = moment_to_column(self._now())
            return bool(transaction.change(_DECIDE, id=found["id"], decision=column, now=now))

        return await self._database.write(work)

    async def use(self, id: str) -> Decision | None:  # noqa: A002
        """Return the decision, to one caller once; None when there is none, or it was used.

        When the caller is cancelled, the decision may be used up all the same: see `Database.write`.
        """
        return await self._database.write(lambda transaction: _use(transaction, id))

    async def expire(self, id: str) -> Decision | None:  # noqa: A002
        """Note that nobody decided in time; a decision that was made meanwhile is used instead, and returned."""

        def work(transaction: Transaction) -> Decision | None:
            if transaction.change(_MOVE, id=id, before="pending", after="timed_out"):
                return None
            return _use(transaction, id)

        return await self._database.write(work)

    async def withdraw(self, id: str) -> None:  # noqa: A002
        """Note that no decision is needed any more; without effect when it is not pending."""
        move = {"id": id, "before": "pending", "after": "withdrawn"}
        await self._database.write(lambda transaction: transaction.change(_MOVE, **move))

    async def prune(self, *, before: datetime, dry_run: bool = False) -> _Ids:
        """Remove what was decided, or else asked, before a moment; never what is pending. Return the ids, in order.

        Args:
            before: By the clock of the machine.
            dry_run: Remove nothing.
        """
        moment = moment_to_column(before)

        def work(transaction: Transaction) -> _Ids:
            rows = transaction.rows(f"SELECT id {_OLD} ORDER BY sequence", before=moment)
            if not dry_run:
                transaction.change(f"DELETE {_OLD}", before=moment)
            return [row["id"] for row in rows]

        return await (self._database.read if dry_run else self._database.write)(work)


def _use(transaction: Transaction, approval_id: str) -> Decision | None:
    if not transaction.change(_MOVE, id=approval_id, before="decided", after="used"):
        return None
    row = transaction.row(_SELECT, id=approval_id)
    assert row is not None
    return _decision(row)


def _find(transaction: Transaction, beginning: str) -> Row:
    enough = len(beginning) >= PREFIX_CHARACTERS and beginning.isascii()
    rows = transaction.rows(_SELECT_BEGINNING, beginning=beginning, length=len(beginning)) if enough else []
    if len(rows) == 1 or (rows and rows[0]["id"] == beginning):
        return rows[0]
    if rows:
        msg = f"more than one approval's id begins with {beginning!r}: give more of it"
    else:
        msg = f"no approval's id is, or begins with, {beginning!r}: give at least {PREFIX_CHARACTERS} characters"
    raise ApprovalNotFound(msg)


def _columns(request: ApprovalRequest) -> dict[str, Value]:
    return {
        "run_key": request.run_key,
        "chunk": request.sequence,
        "session_id": request.session_id,
        "tool_name": request.tool_name,
        "content_hash": request.content_hash,
        "approvers": json.dumps(request.approvers),
        "timeout_s": request.timeout_s,
        "preview": text_to_column(request.preview),
        "text": text_to_column(request.text),
    }


def _approval(row: Row) -> Approval:
    decided_at = row["decided_at"]
    read: dict[str, Any] = {
        "approvers": tuple(json.loads(row["approvers"])),
        "preview": text_from_column(row["preview"]),
        "text": text_from_column(row["text"]),
        "decision": _decision(row),
        "created_at": moment_from_column(row["created_at"]),
        "decided_at": None if decided_at is None else moment_from_column(decided_at),
    }
    return Approval(**(row | read))


def _decision(row: Row) -> Decision | None:
    if row["decision"] is None:
        return None
    try:
        return _DECISION.validate_python(json.loads(row["decision"]))
    except (ValueError, ValidationError):
        msg = f"the decision on the approval {row['id']!r} cannot be read: ask again"
        raise StorageError(msg) from None  # Boundary: the error would show an edited text
