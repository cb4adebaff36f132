"""What a policy's view gets besides its spool, for tests that have no session."""

from contextlib import nullcontext
from typing import Any

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.streaming.approval import ApprovalRequest, Approve, Decision
from aeolus_sandbox.streaming.policies import PolicyContext
from aeolus_sandbox.streaming.services import SessionServices
from aeolus_sandbox.streaming.text_model import TextModel


class ApprovesAll:
    """Approvals where everything passes at once; remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[ApprovalRequest] = []

    async def decide(self, request: ApprovalRequest) -> Decision:
        self.asked.append(request)
        return Approve(by="test")

    async def expire(self, request: ApprovalRequest) -> Decision | None:
        return None

    async def withdraw(self, request: ApprovalRequest) -> None:
        return None


def no_text_model(name: str) -> TextModel:
    raise AssertionError(f"nobody should ask {name}")


def policy_context(**fields: Any) -> PolicyContext:
    """Return a context in which nothing is there unless it is given."""
    defaults: dict[str, Any] = {
        "session_id": "session",
        "run_key": "run",
        "tool_name": "tool",
        "tasks": BackgroundTasks(),
        "pause_clock": nullcontext,
        "halt": lambda: None,
        "text_model": no_text_model,
        "approvals": ApprovesAll(),
    }
    return PolicyContext(**(defaults | fields))


def session_services(tasks: BackgroundTasks, **fields: Any) -> SessionServices:
    """Return services for a session in which nothing is there unless it is given."""
    defaults: dict[str, Any] = {"text_model": no_text_model, "approvals": ApprovesAll()}
    return SessionServices(tasks=tasks, **(defaults | fields))
