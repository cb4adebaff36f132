"""How `approvals` shows what waits for a decision."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from aeolus_sandbox.cli.state import liveness_of, with_age
from aeolus_sandbox.storage.records import Approval
from aeolus_sandbox.streaming.approval import Approve, Decision, Deny, Edit

COLUMNS: Final = ("state", "tool", "session", "which", "age", "process", "approvers", "preview")
_RESULT: Final = -1


def cells(approval: Approval, when: Callable[[datetime], str]) -> tuple[str, ...]:
    """Return the columns; `when` says how a moment is shown."""
    return (
        approval.state,
        approval.tool_name,
        approval.session_id,
        _which(approval),
        when(approval.created_at),
        _process(approval) or "",
        ", ".join(approval.approvers),
        " ".join(approval.preview.split()),
    )


def fields(approval: Approval) -> dict[str, str | None]:
    """Return all that is known of it but the text, each by its name."""
    process, note = _process(approval), process_note(approval)
    return {
        "id": approval.id,
        "state": approval.state,
        "tool": approval.tool_name,
        "session": approval.session_id,
        "run": approval.run_key,
        "which": _which(approval),
        "approvers": ", ".join(approval.approvers),
        "asked": with_age(approval.created_at),
        "time limit": f"{approval.timeout_s:g} s",
        "process": note or process,
        "decision": in_words(approval.decision) if approval.decision else None,
        "hash": approval.content_hash,
        "characters": str(len(approval.text)),
    }


def as_record(approval: Approval) -> dict[str, Any]:
    """Return it as JSON takes it, without the text."""
    decision = approval.decision
    record = asdict(approval) | {
        "approvers": list(approval.approvers),
        "decision": decision and decision.model_dump(mode="python"),
        "process": _process(approval),
        "characters": len(approval.text),
    }
    del record["text"]
    return record


def _which(approval: Approval) -> str:
    return "result" if approval.chunk == _RESULT else f"chunk {approval.chunk}"


def _process(approval: Approval) -> str | None:
    """Return whether the process that asks lives, where that still matters."""
    return liveness_of(approval.owner) if approval.state in {"pending", "decided"} else None


def process_note(approval: Approval) -> str:
    """Return what it means that the process that asks is gone; nothing when it is not."""
    if _process(approval) != "gone":
        return ""
    if approval.run_key == approval.session_id:  # the run had no key: nothing can go on with it
        return "its process is gone, and its run had no key: a decision counts for nothing"
    return "its process is gone: counts for the next run of the same key"


def in_words(decision: Decision | None) -> str:
    """Return a decision as people say it."""
    match decision:
        case Approve():
            return f"approved by {decision.by}"
        case Edit():
            return f"approved by {decision.by}, edited"
        case Deny(reason=""):
            return f"denied by {decision.by}"
        case Deny():
            return f"denied by {decision.by}: {decision.reason}"
        case None:
            return "not decided"
