"""The tables of our SQLite files, as the steps that led to them.

A step that was released is never changed: what is new is a new step at the end. Only what SQLite 3.24 knows is used
(no `STRICT`, no `RETURNING`): distributions that are still in use come with a library that old.
What is long stands last in a table, because SQLite walks through it to reach what comes after.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

Migration = Sequence[str]
"""SQL statements that lead from one version of the schema to the next, all or nothing."""


class FileKind(NamedTuple):
    """What a file is for: one kind is never taken for another."""

    name: str
    """What messages call it."""
    application_id: int
    """Tells such files from others, and from those of other programs; it stands in the file's header."""


STATE_FILE: Final = FileKind("state file", int.from_bytes(b"Aeol"))
TRACE_FILE: Final = FileKind("trace file", int.from_bytes(b"AeoT"))
HISTORY_FILE: Final = FileKind("history file", int.from_bytes(b"AeoH"))

_CHECKPOINTS: Final = """
CREATE TABLE checkpoints (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    tool_name TEXT NOT NULL,
    input_hash TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'done', 'interrupted')),
    owner TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    beat INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    ended_at TEXT CHECK ((state = 'running') = (ended_at IS NULL)),
    final BLOB CHECK ((state = 'done') = (final IS NOT NULL))
)
"""

_APPROVALS: Final = """
CREATE TABLE approvals (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    run_key TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    tool_name TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    approvers TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'decided', 'used', 'timed_out', 'withdrawn')),
    owner TEXT NOT NULL,
    timeout_s REAL NOT NULL,
    created_at TEXT NOT NULL,
    decided_at TEXT,
    decision TEXT CHECK (decision IS NOT NULL OR state NOT IN ('decided', 'used')),
    preview BLOB NOT NULL,
    text BLOB NOT NULL
)
"""

_OPEN_APPROVALS: Final = """
CREATE UNIQUE INDEX open_approvals ON approvals (run_key, chunk, content_hash)
WHERE state IN ('pending', 'decided')
"""

MIGRATIONS: Final[Sequence[Migration]] = (
    (
        _CHECKPOINTS,
        "CREATE INDEX running_checkpoints ON checkpoints (owner) WHERE state = 'running'",
        _APPROVALS,
        "CREATE INDEX approvals_by_state ON approvals (state, sequence)",
        _OPEN_APPROVALS,
    ),
    ("ALTER TABLE checkpoints ADD COLUMN progress BLOB",),
)
"""The steps; how many of them a file has seen is its `PRAGMA user_version`."""

_TRACE_RUNS: Final = """
CREATE TABLE runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    agent TEXT NOT NULL,
    model TEXT NOT NULL,
    started_at TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'done', 'error')),
    lost_events INTEGER NOT NULL,
    usage TEXT
)
"""

_TRACE_ROWS: Final = """
CREATE TABLE rows (
    run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    type TEXT NOT NULL,
    tool_call_id TEXT,
    time TEXT NOT NULL,
    elapsed_ms REAL NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (run, sequence)
)
"""

TRACE_MIGRATIONS: Final[Sequence[Migration]] = (
    (_TRACE_RUNS, "CREATE INDEX runs_of_sessions ON runs (session_id, number)", _TRACE_ROWS),
)
"""The steps of trace files."""

_CONVERSATIONS: Final = """
CREATE TABLE conversations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    model TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    used INTEGER NOT NULL,
    usage TEXT NOT NULL
)
"""

_MESSAGES: Final = """
CREATE TABLE messages (
    conversation INTEGER NOT NULL REFERENCES conversations (number) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (conversation, position)
)
"""

HISTORY_MIGRATIONS: Final[Sequence[Migration]] = (
    (_CONVERSATIONS, "CREATE INDEX conversations_by_use ON conversations (used)", _MESSAGES),
)
"""The steps of history files."""
