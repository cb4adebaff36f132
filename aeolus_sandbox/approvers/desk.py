"""The desk: keeps what waits for a decision in the state file, and asks whoever can decide."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import ApprovalDenied, StorageError
from aeolus_sandbox.storage.approvals import ApprovalStore
from aeolus_sandbox.streaming.approval import ApprovalRequest, Approve, Approver, Decision, Deny, Edit

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_CANCEL_GRACE_S: Final = 5.0
"""How long an approver may take to end after it was cancelled."""
_Key = tuple[str, int, str]


class ApprovalDesk:
    """Where all sessions of a manager ask: an `Approvals` over the state file.

    A decision can come from the approver or, through the state file, from another process; the first one counts, for
    this text of this run, once.
    """

    def __init__(
        self, store: ApprovalStore, approver: Approver | None, *, owner: str, poll_s: float = 0.25
    ) -> None:
        """Open the desk.

        Args:
            store: Where what is pending is kept.
            approver: Who is asked; None: the decision comes through the state file.
            owner: The process that asks, as it stands in the state file.
            poll_s: How often the state file is looked at for a decision, in seconds.
        """
        self._store = store
        self._approver = approver
        self._owner = owner
        self._poll_s = poll_s
        self._tasks = BackgroundTasks()
        self._ids: dict[_Key, str] = {}
        self._late: dict[_Key, Decision] = {}
        """Decisions that were taken while the time was over."""

    async def decide(self, request: ApprovalRequest) -> Decision:
        """Return the decision on a request; see `Approvals.decide`.

        Raises:
            ApprovalDenied: The decision was used, or the question withdrawn, by another process.
            StorageError: It cannot be kept; nobody was asked.
        """
        approval = await self._store.add(request, owner=self._owner)
        self._ids[_key(request)] = approval.id
        if approval.state == "pending":
            await self._wait_decided(approval.id, request)
        decision = await self._take(approval.id, _key(request))
        if decision is None:
            # Boundary: a decision counts once. Asking anew would let two runs pass what was approved for one.
            msg = (
                f"{request.subject} was not approved: the decision on it was used, or the question withdrawn, by "
                f"another process that has the run {request.run_key!r}"
            )
            raise ApprovalDenied(msg)
        return decision

    async def expire(self, request: ApprovalRequest) -> Decision | None:
        """Say that the time is over; see `Approvals.expire`."""
        id_ = self._ids.pop(_key(request), None)
        late = self._late.pop(_key(request), None)
        if late is not None or id_ is None:
            return late
        return await self._store.expire(id_)

    async def withdraw(self, request: ApprovalRequest) -> None:
        """Say that the decision is not needed; see `Approvals.withdraw`."""
        self._late.pop(_key(request), None)
        if (id_ := self._ids.pop(_key(request), None)) is not None:
            await self._store.withdraw(id_)

    async def _wait_decided(self, id_: str, request: ApprovalRequest) -> None:
        """Wait until the question is pending no more, whoever answers it."""
        waiting: list[asyncio.Task[None]] = [self._start(self._wait_settled(id_))]
        if self._approver is not None:
            waiting.append(self._start(self._ask(self._approver, id_, request)))
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in waiting:
                each.cancel()
            _, left = await asyncio.wait(waiting, timeout=_CANCEL_GRACE_S)
            if left:
                _logger.warning("the approver goes on although it was cancelled: %s", request.subject)

    async def _wait_settled(self, id_: str) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            try:
                approval = await self._store.get(id_)
            except StorageError as error:
                if not error.retryable:
                    raise
                continue
            if approval is None or approval.state != "pending":
                return

    async def _ask(self, approver: Approver, id_: str, request: ApprovalRequest) -> None:
        try:
            decision: object = await approver.decide(request)
        except Exception as error:  # noqa: BLE001 - no answer, whatever it is; what it says may hold the text
            decision = None
            _logger.warning("the approver failed on %s: %s", request.subject, type(error).__name__)
        if not isinstance(decision, Approve | Edit | Deny):
            name = type(approver).__name__
            decision = Deny(by=name, reason=f"{name} gave no decision", answered=False)
        await self._store.decide(id_, decision)  # in vain where somebody was quicker: theirs counts

    async def _take(self, id_: str, key: _Key) -> Decision | None:
        """Take the decision, to be used this once; one that is taken when the time is over is not lost."""
        taking = self._start(self._store.use(id_))
        try:
            await asyncio.wait([taking])
        except asyncio.CancelledError:
            await asyncio.wait([taking])  # one row: a few milliseconds
            if not taking.cancelled() and not taking.exception() and (late := taking.result()) is not None:
                self._late[key] = late
            raise
        self._ids.pop(key, None)
        return taking.result()

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self._tasks.start(work, name=f"approval desk of {self._owner}", awaited=True)


def _key(request: ApprovalRequest) -> _Key:
    return request.run_key, request.sequence, request.content_hash
