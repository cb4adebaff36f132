"""A consumer that writes a trace as JSON lines."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from aeolus_sandbox.consumers.delivery import deliver
from aeolus_sandbox.consumers.joining import Joined, Joiner
from aeolus_sandbox.consumers.problems import Problems
from aeolus_sandbox.consumers.shortening import shortened
from aeolus_sandbox.consumers.thread_writer import ThreadWriter
from aeolus_sandbox.consumers.trace_file import TraceFile, TraceLine, file_name, format_line
from aeolus_sandbox.consumers.weight import weight
from aeolus_sandbox.errors import StorageError
from aeolus_sandbox.events import (
    Content,
    Done,
    Error,
    Reasoning,
    SessionStarted,
    StreamEvent,
    ToolOutput,
)
from aeolus_sandbox.storage.columns import utc_now

TraceFormat = Literal["detailed", "compact"]

MAX_JOINED_CHARACTERS: Final = 64 * 1024
"""A joined text of this length ends its line; what comes then is another line."""
FLUSH_S: Final = 1.0
"""How long a text that is being joined waits in memory at most, in seconds."""
_MAX_WEIGHT: Final = 256 * 1024


class TraceConsumer:
    """Writes every event as a JSON line into `<session>.jsonl`; a session that is continued goes on in its file.

    `detailed`: every event as it is. An event that was taken has been handed over to the operating system: a crash
    of the process loses nothing, one of the machine what was not on the disk yet; at the run's end all of it is.
    `compact`: consecutive content, and reasoning, is joined, for a second at most, and long texts of tools are
    shortened, which the line says. Such pieces are written while the run goes on: a crash may lose the last second
    of them, but no other event.
    The first failure is raised, by the event that it hits, and logged; it and all others are in `problems`, and the
    next line that can be written says how many events are missing before it.
    """

    def __init__(
        self,
        folder: Path,
        session_id: str | None = None,
        format: TraceFormat = "detailed",  # noqa: A002 - what it is called everywhere
        *,
        flush_s: float = FLUSH_S,
        now: Callable[[], datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one.

        Args:
            folder: Where the file is; it is made where there is none, for its user alone.
            session_id: What the file is called by (see `file_name`); None: what the events say.
            format: `detailed` or `compact`.
            flush_s: How long a text that is being joined waits at most, in seconds.
            now: The clock of the machine.
            monotonic: A clock that never steps, in seconds.

        Raises:
            ConfigurationError: The id is empty.
        """
        self._folder = Path(folder)
        self._name = None if session_id is None else file_name(session_id)
        self._is_compact = format == "compact"
        self._flush_s = flush_s
        self._now, self._monotonic = now, monotonic
        self._joiner = Joiner(MAX_JOINED_CHARACTERS if self._is_compact else 0)
        # None: the end of a run, where the file is closed.
        self._writer = ThreadWriter[Joined | None](self._write, max_weight=_MAX_WEIGHT)
        self._file: TraceFile | None = None
        self._began_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._untold = 0
        self.path: Path | None = None if self._name is None else self._folder / self._name
        """The file; None: the first event will say."""
        self.problems = Problems()
        """What could not be written."""

    def on_event(self, event: StreamEvent) -> Awaitable[None] | None:
        """Take an event. See `StreamConsumer.on_event`.

        Raises:
            StorageError: It could not be written; raised once.
        """
        if self._began_s is not None and isinstance(event, SessionStarted):
            return self._begin_anew(event)  # the run before was cut off
        if self._began_s is None:
            self._begin(event)
            self._began_s = self._monotonic()
        ready = self._joiner.feed(event, self._now(), (self._monotonic() - self._began_s) * 1000)
        if not self._is_compact:
            ready += self._joiner.flush()
        elif self._joiner.open is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._time_is_over)
        has_room = True
        for joined in ready:
            has_room = self._writer.put(joined, weight=weight(joined.first))
        if isinstance(event, Done | Error):
            return self.aclose()
        if self._is_compact and isinstance(event, Content | Reasoning | ToolOutput):
            return None if has_room else self._writer.wait_for_room()
        return self._writer.flush()

    async def aclose(self) -> None:
        """Write what waits, wait until all is on the disk, and close the file; the next event opens it again.

        Raises:
            StorageError: Something could not be written; raised once.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for joined in self._joiner.flush():
            self._writer.put(joined)
        self._writer.put(None)
        self._began_s = None
        await self._writer.flush()

    async def _begin_anew(self, event: SessionStarted) -> None:
        await self.aclose()
        await deliver(self, event)

    def _begin(self, event: StreamEvent) -> None:
        if self._name is None:
            self.path = self._folder / file_name(event.session_id)

    def _time_is_over(self) -> None:
        self._timer = None
        for joined in self._joiner.flush():
            self._writer.put(joined)  # what goes wrong is the next event's error

    # In a thread.

    def _write(self, items: Sequence[Joined | None]) -> None:
        first: StorageError | None = None
        for joined in items:
            lost = 0 if joined is None else joined.last_sequence - joined.first.sequence + 1
            try:
                self._close() if joined is None else self._append(joined)
            except StorageError as error:
                self._untold += lost
                if self.problems.note(error, trace=str(self.path), lost_events=lost):
                    first = error
        if first is not None:
            raise first

    def _append(self, joined: Joined) -> None:
        assert self.path is not None
        if self._file is None:
            self._file = TraceFile(self.path)
        event, left_out = shortened(joined.event) if self._is_compact else (joined.event, 0)
        line = TraceLine(
            event=event,
            time=joined.time,
            elapsed_ms=joined.elapsed_ms,
            last_sequence=joined.last_sequence,
            left_out_characters=left_out,
            lost_events=self._untold,
        )
        self._file.append(format_line(line))
        self._untold = 0

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
