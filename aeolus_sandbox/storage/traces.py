"""Which events the runs of agents had: trace files.

One file for any number of sessions and processes. A session can have several runs (it was continued); `sequence`
counts anew in each. Rows are in the order of their sequence: clocks may step, this does not.
Boundary: the events are stored as JSON in ASCII, so that a file's text is exact and harmless at a terminal too.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from aeolus_sandbox.errors import StorageError
from aeolus_sandbox.events import AggregatedUsage, StreamEvent
from aeolus_sandbox.storage.columns import moment_from_column, moment_to_column
from aeolus_sandbox.storage.database import Database, Row, Transaction, Value
from aeolus_sandbox.storage.event_json import event_from_json, event_to_json
from aeolus_sandbox.storage.schema import TRACE_FILE, TRACE_MIGRATIONS

TraceState = Literal["running", "done", "error"]

PAGE_ROWS: Final = 200
"""How many rows are read at once."""

# The same rows may come twice: whether a write that was not answered in time was made is not known.
_PUT_RUN: Final = """
INSERT INTO runs (id, session_id, agent, model, started_at, state, lost_events, usage)
VALUES (:id, :session_id, :agent, :model, :started_at, :state, :lost_events, :usage)
ON CONFLICT (id) DO UPDATE SET state = :state, lost_events = :lost_events, usage = :usage
"""
_RUN_NUMBER: Final = "SELECT number FROM runs WHERE id = :id"
_PUT_ROW: Final = """
INSERT OR REPLACE INTO rows (run, sequence, last_sequence, type, tool_call_id, time, elapsed_ms, event)
VALUES (:run, :sequence, :last_sequence, :type, :tool_call_id, :time, :elapsed_ms, :event)
"""
_SELECT_RUNS: Final = """
SELECT runs.*, (SELECT count(*) FROM rows WHERE rows.run = runs.number) AS row_count FROM runs
"""
_LATEST_RUNS: Final = f"{_SELECT_RUNS} ORDER BY number DESC LIMIT :limit"
_RUNS_OF_SESSION: Final = f"{_SELECT_RUNS} WHERE session_id = :session_id ORDER BY number"
_PAGE: Final = """
SELECT rows.* FROM rows JOIN runs ON runs.number = rows.run
WHERE runs.session_id = :session_id AND (rows.run, rows.sequence) > (:run, :sequence)
ORDER BY rows.run, rows.sequence LIMIT :limit
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One event of a run, or several pieces of text that followed each other, joined into one."""

    event: StreamEvent
    """The event; of several, the first with the text of all."""
    last_sequence: int
    """`sequence` of the last event that is in it."""
    time: datetime
    """When the first one came, by the clock of the machine (UTC)."""
    elapsed_ms: float
    """Time from the first event of the run to this one, in milliseconds; monotonic."""
    run: int = 0
    """Number of the run in its file; later runs have higher ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRun:
    """One run of an agent."""

    id: str
    session_id: str
    agent: str
    model: str
    started_at: datetime
    """By the clock of the machine (UTC)."""
    state: TraceState = "running"
    """`running`: it has not ended, or its process died before it had."""
    lost_events: int = 0
    """How many of its events could not be written."""
    usage: AggregatedUsage | None = None
    """What it has used."""
    number: int = 0
    """Place among the runs of its file."""
    rows: int = 0


class TraceStore:
    """The runs in a trace file. All methods raise `StorageError` when the file cannot be used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def at(cls, path: Path) -> "TraceStore":
        """Return the store of a trace file, which is made by the first use where there is none."""
        return cls(Database(path, kind=TRACE_FILE, migrations=TRACE_MIGRATIONS))

    async def write(self, run: TraceRun, rows: Sequence[TraceRow]) -> None:
        """Keep a run as it is now, and rows of it, all or none; rows of the same sequence are replaced.

        Raises:
            StorageBusy: Another process holds the file locked; the same call may be made again.
            StorageFull: There is no room.
            StorageError: It cannot be written.
        """

        def work(transaction: Transaction) -> None:
            transaction.change(_PUT_RUN, **_run_columns(run))
            number = transaction.rows(_RUN_NUMBER, id=run.id)[0]["number"]
            for row in rows:
                transaction.change(_PUT_ROW, **_row_columns(row), run=number)

        await self._database.write(work)

    async def runs(self, *, limit: int = 100) -> list[TraceRun]:
        """Return the latest runs, latest first."""
        found = await self._database.read(lambda transaction: transaction.rows(_LATEST_RUNS, limit=limit))
        return [_run(row) for row in found]

    async def runs_of(self, session_id: str) -> list[TraceRun]:
        """Return the runs of a session, first one first."""
        column = _unicode(session_id)
        found = await self._database.read(
            lambda transaction: transaction.rows(_RUNS_OF_SESSION, session_id=column)
        )
        return [_run(row) for row in found]

    async def rows(self, session_id: str) -> AsyncIterator[TraceRow]:
        """Yield the rows of all runs of a session, in order; a few at a time are in memory."""
        place: dict[str, Value] = {"run": 0, "sequence": -1}
        while page := await self._page(_unicode(session_id), place):
            for row in page:
                yield _row(row)
            place = {name: page[-1][name] for name in place}

    async def aclose(self) -> None:
        """Close the file."""
        await self._database.aclose()

    async def _page(self, session_id: str, after: dict[str, Value]) -> list[Row]:
        return await self._database.read(
            lambda transaction: transaction.rows(_PAGE, session_id=session_id, limit=PAGE_ROWS, **after)
        )


def _run_columns(run: TraceRun) -> dict[str, Value]:
    return {
        "id": run.id,
        "session_id": _unicode(run.session_id),
        "agent": _unicode(run.agent),
        "model": _unicode(run.model),
        "started_at": moment_to_column(run.started_at),
        "state": run.state,
        "lost_events": run.lost_events,
        "usage": None if run.usage is None else run.usage.model_dump_json(),
    }


def _run(row: Row) -> TraceRun:
    usage = row["usage"]
    read: dict[str, Any] = {
        "started_at": moment_from_column(row["started_at"]),
        "usage": None if usage is None else AggregatedUsage.model_validate_json(usage),
        "rows": row.pop("row_count"),
    }
    return TraceRun(**(row | read))


def _row_columns(row: TraceRow) -> dict[str, Value]:
    event = row.event
    call = getattr(event, "tool_call_id", None)
    return {
        "sequence": event.sequence,
        "last_sequence": row.last_sequence,
        "type": event.type,
        "tool_call_id": None if call is None else _unicode(call),
        "time": moment_to_column(row.time),
        "elapsed_ms": row.elapsed_ms,
        "event": event_to_json(event),
    }


def _row(row: Row) -> TraceRow:
    try:
        event = event_from_json(row["event"])
    except (ValueError, ValidationError):
        msg = f"row {row['sequence']} of run {row['run']} of the trace file is no event: it is damaged"
        raise StorageError(msg) from None
    return TraceRow(
        event=event,
        last_sequence=row["last_sequence"],
        time=moment_from_column(row["time"]),
        elapsed_ms=row["elapsed_ms"],
        run=row["run"],
    )


def _unicode(text: str) -> str:
    """Return a text that SQLite can hold: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
