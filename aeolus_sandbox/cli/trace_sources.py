"""Where `aeolus traces` reads from: folders of JSONL traces, single ones, and SQLite trace files, all alike."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from aeolus_sandbox.consumers.trace_file import TraceLine, read_trace
from aeolus_sandbox.events import Done, Error, SessionStarted
from aeolus_sandbox.storage.traces import TraceStore

_SQLITE: Final = b"SQLite format 3\0"
"""https://sqlite.org/fileformat2.html#magic_header_string"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What is known of one session at a glance."""

    session_id: str
    agent: str
    model: str
    state: str
    """`running`, `done` or `error`, of its last run."""
    began: datetime
    lines: int


class Traces(Protocol):
    """Traces of any number of sessions."""

    async def sessions(self, limit: int) -> list[TraceSummary]:
        """Return the latest sessions, latest first."""
        ...

    def lines(self, session_id: str) -> AsyncGenerator[TraceLine, None]:
        """Yield what a session did, in order; nothing where there is none."""
        ...

    async def aclose(self) -> None:
        """Close what is open."""
        ...


def open_traces(path: Path) -> Traces:
    """Return the traces at a path; it blocks a moment where it looks what is there."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                return StoredTraces(path)
    return FileTraces(path)


class FileTraces:
    """A folder of JSONL traces, or one of its files."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def sessions(self, limit: int) -> list[TraceSummary]:
        """Return the latest sessions; all files are read."""
        found = await asyncio.to_thread(lambda: [each for file in self._files() for each in _summaries(file)])
        return sorted(found, key=lambda each: each.began, reverse=True)[:limit]

    async def lines(self, session_id: str) -> AsyncGenerator[TraceLine, None]:
        """Yield what a session did."""
        for file in await asyncio.to_thread(self._files):
            lines = read_trace(file)
            while (line := await asyncio.to_thread(next, lines, None)) is not None:
                if line.event.session_id == session_id:
                    yield line

    async def aclose(self) -> None:
        """Do nothing: no file stays open."""

    def _files(self) -> list[Path]:
        return [self._path] if self._path.is_file() else sorted(self._path.glob("*.jsonl"))


class StoredTraces:
    """An SQLite trace file."""

    def __init__(self, path: Path) -> None:
        self._store = TraceStore.at(path)

    async def sessions(self, limit: int) -> list[TraceSummary]:
        """Return the latest sessions, each as its latest run says."""
        found: dict[str, TraceSummary] = {}
        for run in await self._store.runs(limit=limit):
            before = found.get(run.session_id)
            found[run.session_id] = TraceSummary(
                session_id=run.session_id,
                agent=run.agent,
                model=run.model,
                state=run.state if before is None else before.state,
                began=run.started_at,
                lines=run.rows + (0 if before is None else before.lines),
            )
        return list(found.values())

    async def lines(self, session_id: str) -> AsyncGenerator[TraceLine, None]:
        """Yield what a session did, run by run."""
        lost = {run.number: run.lost_events for run in await self._store.runs_of(session_id)}
        async for row in self._store.rows(session_id):
            yield TraceLine(
                event=row.event,
                time=row.time,
                elapsed_ms=row.elapsed_ms,
                last_sequence=row.last_sequence,
                lost_events=lost.pop(row.run, 0),  # where in the run they are missing is not known
            )

    async def aclose(self) -> None:
        """Close the file."""
        await self._store.aclose()


def _summaries(file: Path) -> Iterator[TraceSummary]:
    found: dict[str, TraceSummary] = {}
    for line in read_trace(file):
        event = line.event
        before = found.get(event.session_id)
        agent, model = (event.agent, event.model) if isinstance(event, SessionStarted) else ("", "")
        found[event.session_id] = TraceSummary(
            session_id=event.session_id,
            agent=before.agent if before else agent,
            model=before.model if before else model,
            state="done" if isinstance(event, Done) else "error" if isinstance(event, Error) else "running",
            began=before.began if before else line.time,
            lines=before.lines + 1 if before else 1,
        )
    yield from found.values()
