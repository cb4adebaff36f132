"""A consumer that writes traces into a SQLite file."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.consumers.delivery import deliver
from aeolus_sandbox.consumers.joining import Joined, Joiner
from aeolus_sandbox.consumers.problems import Problems
from aeolus_sandbox.consumers.weight import weight
from aeolus_sandbox.errors import StorageError
from aeolus_sandbox.events import Done, Error, SessionStarted, StreamEvent, TurnCompleted, UsageUpdate
from aeolus_sandbox.identifiers import new_identifier
from aeolus_sandbox.retrying import retry_while_retryable
from aeolus_sandbox.storage.columns import utc_now
from aeolus_sandbox.storage.traces import TraceRow, TraceRun, TraceState, TraceStore

MAX_JOINED_CHARACTERS: Final = 1024 * 1024
"""A joined text of this length ends its row; what comes then is another row."""
MAX_WAITING_ROWS: Final = 500
MAX_WAITING_CHARACTERS: Final = 1024 * 1024
FLUSH_S: Final = 1.0
"""How long an event waits in memory at most, in seconds."""
_CLOSE_S: Final = 60.0


class SqliteTraceConsumer:
    """Writes the events of runs into a trace file; consecutive content, and reasoning, is one row.

    Several processes may write into one file at once. Events are written together: at the end of each turn and of
    the run, when many wait, and a second after the first that waits; a crash loses what waits. After the run's last
    event the file is closed. The first failure is raised, by the event that notices it, and logged; it and all others
    are in `problems`, and how many events a run has lost stands in the file as soon as it can be written again.
    """

    def __init__(
        self,
        path: Path,
        *,
        session_id: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        flush_s: float = FLUSH_S,
        now: Callable[[], datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one.

        Args:
            path: The file; it is made where there is none, readable for its user alone.
            session_id: What the runs are found by; None: what the events say.
            agent: Name of the agent; None: what the events say.
            model: Name of the model; None: what the events say.
            flush_s: How long an event waits at most, in seconds.
            now: The clock of the machine.
            monotonic: A clock that never steps, in seconds.
        """
        self._path = Path(path)
        self._session_id, self._agent, self._model = session_id, agent, model
        self._flush_s = flush_s
        self._now, self._monotonic = now, monotonic
        self._joiner = Joiner(MAX_JOINED_CHARACTERS)
        self._waiting: list[TraceRow] = []
        self._characters = 0
        self._store: TraceStore | None = None
        self._run: TraceRun | None = None
        self._began_s = 0.0
        self._lost_before = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = BackgroundTasks()
        self._writing = asyncio.Lock()
        self._to_raise: Exception | None = None
        self.problems = Problems()
        """What could not be written."""

    def on_event(self, event: StreamEvent) -> Awaitable[None] | None:
        """Take an event. See `StreamConsumer.on_event`.

        Raises:
            StorageError: Events could not be written; raised once.
        """
        if self._run is not None and isinstance(event, SessionStarted):
            return self._begin_anew(event)  # the run before was cut off
        now_s = self._monotonic()
        if self._run is None:
            self._begin(event, now_s)
        for joined in self._joiner.feed(event, self._now(), (now_s - self._began_s) * 1000):
            self._wait_for_turn(joined)
        self._note_state(event)
        if isinstance(event, Done | Error):
            return self._end()
        is_full = len(self._waiting) >= MAX_WAITING_ROWS or self._characters >= MAX_WAITING_CHARACTERS
        if is_full or isinstance(event, TurnCompleted) or self._to_raise is not None:
            return self._flush_and_raise()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._time_is_over)
        return None

    async def aclose(self) -> None:
        """Write what waits and close the file, also when the run has not ended.

        Raises:
            StorageError: Events could not be written; raised once.
        """
        if self._run is not None:
            await self._end()

    def _begin(self, event: StreamEvent, now_s: float) -> None:
        agent, model = (event.agent, event.model) if isinstance(event, SessionStarted) else ("", "")
        self._began_s = now_s
        self._lost_before = self.problems.lost_events
        self._run = TraceRun(
            id=new_identifier(),
            session_id=self._session_id or event.session_id,
            agent=self._agent or agent,
            model=self._model or model,
            started_at=self._now(),
        )

    def _wait_for_turn(self, joined: Joined) -> None:
        self._waiting.append(_row(joined))
        self._characters += joined.characters or weight(joined.first)

    def _note_state(self, event: StreamEvent) -> None:
        assert self._run is not None
        match event:
            case UsageUpdate():
                self._run = replace(self._run, usage=event.snapshot)
            case Done() | Error():
                state: TraceState = "done" if isinstance(event, Done) else "error"
                self._run = replace(self._run, state=state)
            case _:
                pass

    def _time_is_over(self) -> None:
        self._timer = None
        self._tasks.start(self._flush(), name="flush a trace")

    async def _begin_anew(self, event: SessionStarted) -> None:
        await self._end()
        await deliver(self, event)

    async def _flush_and_raise(self) -> None:
        # What was taken to be written is written, also when the run is cancelled meanwhile.
        await self._tasks.run(self._flush(), name="flush a trace")
        error, self._to_raise = self._to_raise, None
        if error is not None:
            raise error

    async def _end(self) -> None:
        """Write all, close the file, and be ready for another run."""
        try:
            self._waiting += map(_row, self._joiner.flush())
            await self._flush_and_raise()
        finally:
            self._run = None
            await self._tasks.aclose(timeout_s=_CLOSE_S)
            store, self._store = self._store, None
            if store is not None:
                await store.aclose()

    async def _flush(self) -> None:
        """Write what waits, and what is open as it is now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        async with self._writing:
            run, rows, opened = self._run, self._waiting, self._joiner.open
            self._waiting, self._characters = [], 0
            if run is not None:
                await self._write(run, rows, opened)

    async def _write(self, run: TraceRun, rows: list[TraceRow], opened: Joined | None) -> None:
        if self._store is None:
            self._store = TraceStore.at(self._path)
        store = self._store
        run = replace(run, lost_events=self.problems.lost_events - self._lost_before)
        all_rows = [*rows, *([] if opened is None else [_row(opened)])]
        try:
            await retry_while_retryable(lambda: store.write(run, all_rows))
        except StorageError as error:
            lost = sum(
                row.last_sequence - row.event.sequence + 1 for row in rows
            )  # what is open is tried again
            if self.problems.note(error, trace=str(self._path), lost_events=lost):
                self._to_raise = error


def _row(joined: Joined) -> TraceRow:
    return TraceRow(
        event=joined.event,
        last_sequence=joined.last_sequence,
        time=joined.time,
        elapsed_ms=joined.elapsed_ms,
    )
