"""An approver for programs: requests come out of it, and answers are given to it."""

import asyncio
from dataclasses import dataclass
from typing import Self

from aeolus_sandbox.streaming.approval import ApprovalRequest, Decision, Deny


@dataclass(slots=True, eq=False)
class _Waiting:
    request: ApprovalRequest
    answer: "asyncio.Future[Decision]"
    is_given: bool = False


class QueueApprover:
    """Hands requests to whoever iterates over it, in the order in which they came, and takes the answers."""

    def __init__(self, *, max_waiting: int = 1000) -> None:
        """Make one.

        Args:
            max_waiting: How many requests may wait for an answer at once; one more is denied at once.
        """
        self._max_waiting = max_waiting
        self._waiting: list[_Waiting] = []
        self._arrived = asyncio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ApprovalRequest:
        return await self.next_request()

    async def next_request(self) -> ApprovalRequest:
        """Return the next request that still waits and that nobody was given; cancelling the call loses nothing."""
        while True:
            for each in self._waiting:
                if not each.is_given:
                    each.is_given = True
                    return each.request
            self._arrived.clear()
            await self._arrived.wait()

    def answer(self, request: ApprovalRequest, decision: Decision) -> bool:
        """Answer a request; False: it does not wait any more, and the answer changes nothing."""
        for each in self._waiting:
            if _identity(each.request) == _identity(request) and not each.answer.done():
                each.answer.set_result(decision)
                return True
        return False

    async def decide(self, request: ApprovalRequest) -> Decision:
        """Wait until the request is answered; see `Approver.decide`."""
        if len(self._waiting) >= self._max_waiting:
            reason = f"{self._max_waiting} requests wait for an answer already"
            return Deny(by="queue", reason=reason, answered=False)
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        try:
            return await waiting.answer
        finally:
            self._waiting.remove(waiting)


def _identity(request: ApprovalRequest) -> tuple[str, str, int, str]:
    return request.session_id, request.run_key, request.sequence, request.content_hash
