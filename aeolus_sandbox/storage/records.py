"""What is kept in the state file, as plain data."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from aeolus_sandbox.streaming.approval import Decision

RunState = Literal["running", "done", "interrupted"]
ApprovalState = Literal["pending", "decided", "used", "timed_out", "withdrawn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One run that can be recovered."""

    sequence: int
    """Order in which the runs were recorded first; clocks may step, this does not."""
    key: str
    """The idempotency key."""
    tool_name: str
    input_hash: str
    state: RunState
    """`running`: its process has it, or died with it. `done`: its result is stored. `interrupted`: it ended
    without a result."""
    owner: str
    """The process that runs it, or ran it last (see `sandboxes.owner.Owner`)."""
    attempts: int
    """How many times it was started."""
    beat: int
    """Counts up while the owner lives."""
    final: str | None
    """The result as JSON."""
    progress: str | None
    """How far its reader came, as its tool says it."""
    created_at: datetime
    """By the clock of the machine (UTC): for people, not for decisions."""
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One text that waits, or waited, for a decision."""

    sequence: int
    """Order in which they were asked for."""
    id: str
    run_key: str
    chunk: int
    """Which text of the run it is; -1: the tool's result."""
    session_id: str
    tool_name: str
    content_hash: str
    """SHA-256 of the text, and of what passes beyond it (an image); a decision counts for this content alone."""
    approvers: tuple[str, ...]
    text: str
    preview: str
    state: ApprovalState
    owner: str
    """The process that asks."""
    timeout_s: float
    decision: Decision | None
    created_at: datetime
    """By the clock of the machine (UTC): for people, not for decisions."""
    decided_at: datetime | None
