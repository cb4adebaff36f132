"""What a decision of a human is: what is asked, what can be answered, and who is asked."""

import hashlib
from enum import StrEnum
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field


class Approve(BaseModel):
    """It passes as it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["approve"] = "approve"
    by: str
    """Who decided: a role, a name, or `timeout`."""


class Edit(BaseModel):
    """Another text, such as a redacted one, passes in its place."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["edit"] = "edit"
    by: str
    text: str
    """What passes instead."""


class Deny(BaseModel):
    """It does not pass."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["deny"] = "deny"
    by: str
    reason: str = ""
    """Why, in words for whoever asked."""
    answered: bool = True
    """Whether somebody said no; False: nobody could answer (no terminal, end of input)."""


Decision = Annotated[Approve | Edit | Deny, Field(discriminator="kind")]


class TimeoutAction(StrEnum):
    """What becomes of a chunk that nobody decided on in time."""

    DENY = "deny"
    """It is withheld, the reader gets `ApprovalTimedOut`, and the session goes on."""
    APPROVE = "approve"
    """It passes."""
    HALT = "halt"
    """It is withheld, the reader gets `ApprovalTimedOut`, and the session ends."""


class ApprovalRequest(BaseModel):
    """One text that waits for a decision."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_key: str
    """Names the run across restarts of the host."""
    sequence: int
    """Which text of the run it is, counted from 0; -1: the tool's result."""
    session_id: str
    tool_name: str
    approvers: tuple[str, ...]
    """The roles that may decide."""
    text: str
    """The whole text."""
    preview: str
    """The beginning and the end of it, as long as the policy says."""
    timeout_s: float
    """How long a decision is waited for, in seconds."""
    beyond_text: str = ""
    """Stands for what passes beyond what the text shows, such as the bytes of an image: a digest, or nothing."""

    @property
    def content_hash(self) -> str:
        """What a decision is bound to: the SHA-256 of the text, and of what passes beyond it."""
        # Boundary: another image of the same size reads the same, and is not what was approved.
        content = self.text + (f"\0{self.beyond_text}" if self.beyond_text else "")
        return text_digest(content)

    @property
    def subject(self) -> str:
        """What it is about, in words for a person."""
        what = "the result" if self.sequence < 0 else f"chunk {self.sequence}"
        return f"{what} of the tool {self.tool_name!r}"


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Approver(Protocol):
    """Somebody, or something, that decides."""

    async def decide(self, request: ApprovalRequest) -> Decision:
        """Return a decision; cancelled when it was decided elsewhere, or too late.

        Called once for each request, from the session's event loop; several may be under way at once.
        What it raises counts as `Deny(answered=False)`.
        """
        ...


class Approvals(Protocol):
    """Where a session asks for decisions: keeps what is pending, and asks whoever can decide."""

    async def decide(self, request: ApprovalRequest) -> Decision:
        """Return the decision on a request, which can be used this once.

        It is pending, and kept in case the host dies, until then; cancelling the call leaves it pending.
        A decision that was made for the same text of the same run, before the host died, counts.

        Raises:
            StorageError: It cannot be kept; nobody was asked.
        """
        ...

    async def expire(self, request: ApprovalRequest) -> Decision | None:
        """Say that nobody decided in time; returns the decision that was made at the last moment, if there is one.

        Raises:
            StorageError: It cannot be noted.
        """
        ...

    async def withdraw(self, request: ApprovalRequest) -> None:
        """Say that the decision is not needed any more: the session was closed."""
        ...
