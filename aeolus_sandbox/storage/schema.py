"""The tables of the state file, as the steps that led to them.

A step that was released is never changed: what is new is a new step at the end. Only what SQLite 3.24 knows is used
(no `STRICT`, no `RETURNING`): distributions that are still in use come with a library that old.
What is long stands last in a table, because SQLite walks through it to reach what comes after.
"""

from collections.abc import Sequence
from typing import Final

Migration = Sequence[str]
"""SQL statements that lead from one version of the schema to the next, all or nothing."""

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
)
"""The steps; how many of them a file has seen is its `PRAGMA user_version`."""
