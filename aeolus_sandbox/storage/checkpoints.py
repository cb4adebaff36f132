"""Which runs began under which idempotency key, and what they ended with."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from aeolus_sandbox.errors import CheckpointConflict, ConfigurationError, RunInterrupted
from aeolus_sandbox.storage.columns import (
    moment_from_column,
    moment_to_column,
    text_from_column,
    text_to_column,
    utc_now,
)
from aeolus_sandbox.storage.database import Database, Row, Transaction, Value
from aeolus_sandbox.storage.records import Checkpoint, RunState

_KEY_CHARACTERS: Final = 200

_Keys = list[str]

_SELECT: Final = "SELECT * FROM checkpoints WHERE key = :key"
_SELECT_ALL: Final = "SELECT * FROM checkpoints ORDER BY sequence DESC LIMIT :limit"
_SELECT_STATE: Final = "SELECT * FROM checkpoints WHERE state = :state ORDER BY sequence DESC LIMIT :limit"
_INSERT: Final = """
INSERT INTO checkpoints (key, tool_name, input_hash, state, owner, attempts, beat, created_at)
VALUES (:key, :tool_name, :input_hash, 'running', :owner, 1, :beat, :now)
"""
# The beat moves too: whoever saw the record before must not take it for the same run.
_RESTART: Final = """
UPDATE checkpoints SET state = 'running', owner = :owner, attempts = attempts + 1, beat = beat + 1, ended_at = NULL
WHERE key = :key
"""
_END: Final = "UPDATE checkpoints SET state = :state, final = :final, ended_at = :now WHERE key = :key"
_OURS: Final = " AND state = 'running' AND owner = :owner AND attempts = :attempt"
_SEEN: Final = " AND state = 'running' AND owner = :seen_owner AND beat = :seen_beat"
_ENDED: Final = "FROM checkpoints WHERE state <> 'running' AND ended_at < :before"


@dataclass(frozen=True, slots=True)
class Claimed:
    """The run is ours: it must be started, and then stored or given up."""

    attempt: int
    """The how manieth start of this run it is, from 1."""
    progress: str | None = None
    """How far an earlier attempt came, as its tool said it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The run came to its end before: nothing must run."""

    final: str
    """The result as JSON."""


@dataclass(frozen=True, slots=True)
class Running:
    """Somebody has the run, or died with it."""

    owner: str
    beat: int
    """It moves while the owner lives."""


def check_key(key: str) -> None:
    """Check an idempotency key; it becomes a container's label too.

    Raises:
        ConfigurationError: It is not one.
    """
    if not (1 <= len(key) <= _KEY_CHARACTERS and key.isprintable()):
        msg = f"an idempotency key is 1 to {_KEY_CHARACTERS} printable characters, not {key[:_KEY_CHARACTERS]!r}"
        raise ConfigurationError(msg)


class Checkpoints:
    """The runs in a state file. All methods raise `StorageError` when the file cannot be used.

    A run belongs to the `owner` and the `attempt` that claimed it; nobody else can end it.
    """

    def __init__(self, database: Database, *, now: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._now = now

    async def claim(
        self, key: str, *, tool_name: str, input_hash: str, owner: str, may_repeat: bool
    ) -> Claimed | Stored | Running:
        """Claim the run of a key, unless it has ended or somebody has it.

        When the caller is cancelled, the run may be claimed all the same: see `Database.write`.

        Args:
            key: The idempotency key.
            tool_name: The tool that will run.
            input_hash: Stands for its input.
            owner: Who claims it (see `sandboxes.owner.Owner`).
            may_repeat: Whether a run that nobody knows the end of may be started again.

        Raises:
            ConfigurationError: The key is not one.
            CheckpointConflict: The key belongs to another tool, or another input.
            RunInterrupted: It began before, never ended, and may not be repeated.
            StorageError: The file cannot be used; nothing was claimed.
        """
        check_key(key)

        def work(transaction: Transaction) -> Claimed | Stored | Running:
            row = transaction.row(_SELECT, key=key)
            if row is None:
                insert = {"key": key, "tool_name": tool_name, "input_hash": input_hash, "owner": owner}
                transaction.change(_INSERT, **insert, beat=_first_beat(), now=self._moment())
                return Claimed(1)
            _check_same_run(row, tool_name, input_hash)
            if row["state"] == "done":
                return Stored(text_from_column(row["final"]))
            if row["state"] == "running":
                return Running(row["owner"], row["beat"])
            if not may_repeat:
                raise _interrupted(key)
            transaction.change(_RESTART, key=key, owner=owner)
            return Claimed(row["attempts"] + 1, _progress(row))

        return await self._database.write(work)

    async def take_over(self, key: str, *, seen: Running, owner: str, may_repeat: bool) -> Claimed | None:
        """Take a run from an owner that is gone; None: the record is not as it was `seen`, so ask again.

        Raises:
            RunInterrupted: It may not be repeated; it is noted as interrupted now.
            StorageError: The file cannot be used; nothing was taken over.
        """

        def work(transaction: Transaction) -> Claimed | None:
            then: dict[str, Value] = {"key": key, "seen_owner": seen.owner, "seen_beat": seen.beat}
            if may_repeat:
                changed = transaction.change(_RESTART + _SEEN, **then, owner=owner)
            else:
                changed = transaction.change(
                    _END + _SEEN, **then, state="interrupted", final=None, now=self._moment()
                )
            row = transaction.row(_SELECT, key=key)
            return Claimed(row["attempts"], _progress(row)) if row and changed else None

        taken = await self._database.write(work)
        if taken is not None and not may_repeat:
            raise _interrupted(key)
        return taken

    async def store_progress(self, key: str, *, owner: str, attempt: int, progress: str) -> None:
        """Keep how far a run of ours has come; without effect when it is not ours, or has ended."""
        column = text_to_column(progress)
        update = "UPDATE checkpoints SET progress = :progress WHERE key = :key"
        await self._database.write(
            lambda transaction: transaction.change(
                update + _OURS, key=key, owner=owner, attempt=attempt, progress=column
            )
        )

    async def store(self, key: str, *, owner: str, attempt: int, final: str) -> None:
        """Keep the result of a run of ours, for good; storing the same again is fine.

        Raises:
            CheckpointConflict: The run is not ours any more.
            StorageError: It is not kept; calling again tries again.
        """
        column = text_to_column(final)

        def work(transaction: Transaction) -> None:
            ours: dict[str, Value] = {"key": key, "owner": owner, "attempt": attempt}
            if transaction.change(_END + _OURS, **ours, state="done", final=column, now=self._moment()):
                return
            row = transaction.row(_SELECT, key=key)
            if row is None or (row["owner"], row["attempts"], row["final"]) != (owner, attempt, column):
                msg = (
                    f"the result of the run {key!r} is not stored: the run was taken over by another process, or is "
                    "not recorded any more; open it again to get the result that counts"
                )
                raise CheckpointConflict(msg)

        await self._database.write(work)

    async def give_up(self, key: str, *, owner: str, attempt: int) -> None:
        """Note that a run of ours ended without a result; without effect when it is not ours, or has ended."""
        await self._database.write(lambda transaction: self._interrupt(transaction, key, owner, attempt))

    async def forget(self, key: str, *, owner: str, attempt: int) -> None:
        """Undo a claim of ours under which nothing was started; without effect when the run is not ours."""

        def work(transaction: Transaction) -> None:
            if attempt == 1:
                delete = "DELETE FROM checkpoints WHERE key = :key"
                transaction.change(delete + _OURS, key=key, owner=owner, attempt=attempt)
            else:  # an earlier attempt did start
                self._interrupt(transaction, key, owner, attempt)

        await self._database.write(work)

    async def beat(self, owner: str) -> None:
        """Show that an owner lives: the beat of all that it runs moves on."""
        move = "UPDATE checkpoints SET beat = beat + 1 WHERE state = 'running' AND owner = :owner"
        await self._database.write(lambda transaction: transaction.change(move, owner=owner))

    async def list(self, *, state: RunState | None = None, limit: int = 100) -> list[Checkpoint]:
        """Return the newest runs, all or those in one state, newest first."""
        query = _SELECT_ALL if state is None else _SELECT_STATE
        rows = await self._database.read(
            lambda transaction: transaction.rows(query, state=state, limit=limit)
        )
        return [_checkpoint(row) for row in rows]

    async def get(self, key: str) -> Checkpoint | None:
        """Return the run of a key, or None.

        Raises:
            ConfigurationError: The key is not one.
            StorageError: The file cannot be used.
        """
        check_key(key)
        row = await self._database.read(lambda transaction: transaction.row(_SELECT, key=key))
        return None if row is None else _checkpoint(row)

    async def prune(self, *, ended_before: datetime, dry_run: bool = False) -> _Keys:
        """Remove the runs that ended before a moment, never a running one, and return their keys, oldest first.

        Args:
            ended_before: By the clock of the machine.
            dry_run: Remove nothing.
        """
        before = moment_to_column(ended_before)

        def work(transaction: Transaction) -> _Keys:
            rows = transaction.rows(f"SELECT key {_ENDED} ORDER BY sequence", before=before)
            if not dry_run:
                transaction.change(f"DELETE {_ENDED}", before=before)
            return [row["key"] for row in rows]

        return await (self._database.read if dry_run else self._database.write)(work)

    def _interrupt(self, transaction: Transaction, key: str, owner: str, attempt: int) -> None:
        ours: dict[str, Value] = {"key": key, "owner": owner, "attempt": attempt}
        transaction.change(_END + _OURS, **ours, state="interrupted", final=None, now=self._moment())

    def _moment(self) -> str:
        return moment_to_column(self._now())


def _first_beat() -> int:
    """Return where a new record's beat starts: anywhere, or one that was forgotten and made anew looks the same."""
    return secrets.randbits(32)


def _check_same_run(row: Row, tool_name: str, input_hash: str) -> None:
    key = row["key"]
    if row["tool_name"] != tool_name:
        msg = f"the idempotency key {key!r} belongs to a run of the tool {row['tool_name']!r}, not of {tool_name!r}"
    elif row["input_hash"] != input_hash:
        msg = f"the idempotency key {key!r} belongs to a run of {tool_name!r} with another input"
    else:
        return
    msg += ": take a new key for a new run"
    raise CheckpointConflict(msg)


def _interrupted(key: str) -> RunInterrupted:
    msg = (
        f"the run {key!r} began and never ended, nobody knows what it did, and its tool is not idempotent: see what "
        "it did, then run it with a new key"
    )
    return RunInterrupted(msg)


def _progress(row: Row) -> str | None:
    progress = row["progress"]
    return None if progress is None else text_from_column(progress)


def _checkpoint(row: Row) -> Checkpoint:
    final, ended_at = row["final"], row["ended_at"]
    read = {
        "final": None if final is None else text_from_column(final),
        "progress": _progress(row),
        "created_at": moment_from_column(row["created_at"]),
        "ended_at": None if ended_at is None else moment_from_column(ended_at),
    }
    return Checkpoint(**(row | read))
