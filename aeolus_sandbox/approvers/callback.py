"""An approver that is a function."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from aeolus_sandbox.streaming.approval import ApprovalRequest, Approve, Decision, Deny, Edit

Verdict = Decision | bool
"""What a callback may answer: a decision, or whether it passes as it is."""


_Decide = Callable[[ApprovalRequest], Verdict | Awaitable[Verdict]]


class CallbackApprover:
    """Asks a function; one that is not `async` runs in a thread, and may block there."""

    def __init__(self, decide: _Decide, by: str = "callback") -> None:
        """Make one.

        Args:
            decide: The function. A thread cannot be cancelled: one that is too late runs on, and its answer is dropped.
            by: Who decides, where the function says only yes or no.
        """
        self._decide = decide
        self._by = by

    async def decide(self, request: ApprovalRequest) -> Decision:
        """Return the function's decision; see `Approver.decide`."""
        answer: Verdict | Awaitable[Verdict]
        if inspect.iscoroutinefunction(self._decide):
            answer = self._decide(request)
        else:
            answer = await asyncio.to_thread(self._decide, request)
        return self._decision(await answer if inspect.isawaitable(answer) else answer)

    def _decision(self, verdict: object) -> Decision:
        # Boundary: only True and a decision are taken at their word; no other value passes for being truthy.
        match verdict:
            case Approve() | Edit() | Deny():
                return verdict
            case True:
                return Approve(by=self._by)
            case False:
                return Deny(by=self._by)
            case _:
                reason = f"the callback gave a {type(verdict).__name__}, and no decision"
                return Deny(by=self._by, reason=reason, answered=False)
