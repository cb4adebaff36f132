"""`Manual`: nothing passes before somebody has approved it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, Field, ValidationError

from aeolus_sandbox.errors import AeolusError, ApprovalDenied, ApprovalError, ApprovalTimedOut, SessionClosed
from aeolus_sandbox.streaming.approval import (
    ApprovalRequest,
    Approve,
    Decision,
    Deny,
    Edit,
    TimeoutAction,
    text_digest,
)
from aeolus_sandbox.streaming.chunks import C
from aeolus_sandbox.streaming.clipping import ClippedText, clip_text
from aeolus_sandbox.streaming.policies.base import ContextWindow, Cursor, M, Policy, PolicyContext, PolicyView
from aeolus_sandbox.streaming.rendering import render_text
from aeolus_sandbox.streaming.spool import Spool

_logger = logging.getLogger(__name__)

_GIST_CHARACTERS: Final = 8000
"""How much of what was let through a result says at most: as much as the built-in tools do."""
_RESULT: Final = -1
_DAY_S: Final = 24 * 3600.0
_CLOSE_GRACE_S: Final = 10.0


class Manual(Policy):
    """Give one chunk at a time, each after somebody has approved it; deny is the default."""

    may_pause_s: ClassVar[float] = _DAY_S

    approvers: tuple[Annotated[str, Field(min_length=1)], ...] = Field(default=("role:admin",), min_length=1)
    """The roles that may decide."""
    preview_length: int = Field(default=500, ge=0)
    """How many characters of a text are shown to them at most."""
    timeout_s: float = Field(default=300.0, gt=0, le=_DAY_S)
    """How long a decision on one text is waited for, in seconds; the session's time limits stand still meanwhile."""
    timeout_action: TimeoutAction = TimeoutAction.DENY
    """What becomes of a text that nobody decided on in time."""

    def view(self, spool: Spool[Any], context: PolicyContext) -> "ManualView[Any]":
        """Return a view of this policy over a spool."""
        return ManualView(spool, self, context)


class ManualView(PolicyView[C]):
    """A spool whose chunks pass one by one, as they are approved.

    The asking goes on in the background: a reader that is cancelled and comes back finds the same question, or its
    answer. What passes is the very object whose text was asked about, or its edited copy.
    """

    def __init__(self, spool: Spool[C], policy: Manual, context: PolicyContext) -> None:
        self._spool = spool
        self._policy = policy
        self._context = context
        self._cursor = Cursor(spool)
        self._asked = 0
        """How many chunks were decided on, or not in time."""
        self._asking: asyncio.Task[C] | None = None
        self._asking_result: asyncio.Task[Any] | None = None
        self._chunk: C | None = None
        """The chunk that was taken from the spool and waits for a decision."""
        self._undecided: dict[int, ApprovalRequest] = {}
        self._halted = False
        self._passed = _Passed()

    async def next_chunk(self) -> C | None:
        """Return the next chunk, once it is approved, or None at the end.

        Raises:
            ApprovalDenied: It was denied, or nobody could answer; the next call goes on with the next chunk.
            ApprovalTimedOut: Nobody decided in time; the next call goes on with the next chunk, or the end.
            SessionClosed: The session was closed before anybody decided.
            StorageError: The question could not be kept; the next call asks again.
        """
        if self._asking is None:
            if self._chunk is None:
                self._chunk = await self._next_in_spool()
            if self._chunk is None:
                return None
            self._asking = self._start(self._ask_chunk(self._chunk))
        await asyncio.wait([self._asking])
        asked, self._asking = self._asking, None
        return _outcome(asked)

    def context_window(self) -> ContextWindow:
        """Return what the reader has before it: the chunk under decision is one that waits."""
        window = self._cursor.context_window(limit_chunks=None)
        update = {"chunks_withheld": self._passed.withheld}
        if (held := self._held()) is not None:
            update["chunks_held"] = window.chunks_held + 1
            update["characters_held"] = window.characters_held + len(held.as_text())
        return window.model_copy(update=update)

    async def result(self, final: M) -> M:
        """Return the result without what was withheld.

        A result that can be given another text (`with_output`) says what was let through, and where something is
        missing. Any other may say anything about the output, so that it needs an approval of its own: once. So does
        one that says something although nothing was streamed, such as the stored result of an earlier run.

        Raises:
            ApprovalDenied: The result was denied, or nobody could answer.
            ApprovalTimedOut: Nobody decided in time, or the session was halted because nobody did.
            SessionClosed: The session was closed before anybody decided.
            StorageError: The question could not be kept; the next call asks again.
        """
        # Boundary: the tool's own gist of its output is made of all of it, approved or not.
        if hasattr(final, "with_output"):
            streamed = self._spool.next_index
            replaced: M = final.with_output(self._passed.gist(undecided=streamed - self._asked))
            if streamed or replaced == final:
                return replaced
        if self._asking_result is None:
            self._asking_result = self._start(self._ask_result(final))
        asking: asyncio.Task[M] = self._asking_result
        await asyncio.wait([asking])
        if not _is_settled(asking) and self._asking_result is asking:
            self._asking_result = None
        return _outcome(asking)

    async def aclose(self) -> None:
        """Withdraw what waits for a decision."""
        asking = {
            each for each in (self._asking, self._asking_result) if each is not None and not each.done()
        }
        for each in asking:
            each.cancel()
        if asking:
            await asyncio.wait(asking, timeout=_CLOSE_GRACE_S)
        for request in list(self._undecided.values()):
            try:
                async with asyncio.timeout(_CLOSE_GRACE_S):
                    await self._context.approvals.withdraw(request)
            except (AeolusError, TimeoutError) as error:
                _logger.warning("%s is not withdrawn: %s", request.subject, error)
        self._undecided.clear()

    async def _next_in_spool(self) -> C | None:
        """Take the next chunk; None at the end. Of a session that was halted, nothing comes any more."""
        while not self._halted:
            chunk = await self._cursor.take()
            if chunk is not None:
                return chunk
            if self._cursor.index < self._spool.next_index:
                continue
            if self._spool.ended:
                return None
            await self._spool.wait_changed()
        while not self._spool.ended:
            await self._spool.wait_changed()
        return None

    def _held(self) -> C | None:
        """Return the chunk between the spool and the reader: under decision, or approved and not fetched yet."""
        asked = self._asking
        if self._chunk is None and asked is not None and asked.done() and _is_passed(asked):
            return asked.result()
        return self._chunk

    # What goes on in the background.

    def _start(self, asking: Coroutine[Any, Any, M]) -> asyncio.Task[M]:
        name = f"approval in session {self._context.session_id}"
        return self._context.tasks.start(asking, name=name, awaited=True)

    async def _ask_chunk(self, chunk: C) -> C:
        try:
            request = self._request(self._asked, chunk.as_text(), chunk)
            passed = _decided(await self._decision(request), request, chunk, chunk.with_text)
            text = passed.as_text()
        except ApprovalError:
            self._settle(None)
            raise
        except AeolusError:  # nobody was asked: the chunk stays, and the next call asks
            raise
        except Exception as error:
            self._settle(None)
            raise self._failure(error) from error
        self._settle(text)
        return passed

    def _settle(self, passed: str | None) -> None:
        """Note that the chunk under decision passed, with what text, or that it is withheld."""
        self._chunk = None
        self._asked += 1
        if passed is None:
            self._passed.withhold()
        else:
            self._passed.feed(passed)

    async def _ask_result(self, final: M) -> M:
        if self._halted:
            msg = "the session was halted because nobody decided in time, and its result is withheld"
            raise ApprovalTimedOut(msg)
        try:
            request = self._request(_RESULT, final.model_dump_json(), final)
            return _decided(await self._decision(request), request, final, type(final).model_validate_json)
        except AeolusError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> ApprovalDenied:
        # Boundary: whatever goes wrong, nothing passes; the message does not repeat what may be in the text.
        what = f"a text of the session {self._context.session_id!r}"
        return ApprovalDenied(
            f"{what} was not approved (no answer): asking failed with {type(error).__name__}"
        )

    async def _decision(self, request: ApprovalRequest) -> Decision:
        """Ask, and wait for the decision as long as the policy says; the session's clock stands still."""
        self._undecided[request.sequence] = request
        with self._context.pause_clock():
            decision = await self._decision_in_time(request)
        self._undecided.pop(request.sequence, None)
        if decision is not None:
            return decision
        if self._policy.timeout_action == TimeoutAction.APPROVE:
            return Approve(by="timeout")
        if self._policy.timeout_action == TimeoutAction.HALT:
            self._halted = True
            self._context.halt()
        msg = f"{request.subject} was not approved: nobody decided within {self._policy.timeout_s:g} s"
        raise ApprovalTimedOut(msg)

    async def _decision_in_time(self, request: ApprovalRequest) -> Decision | None:
        limit = asyncio.timeout(self._policy.timeout_s)
        try:
            async with limit:
                return await self._context.approvals.decide(request)
        except TimeoutError:
            if not limit.expired():
                raise
        return await self._context.approvals.expire(request)

    def _request(self, sequence: int, text: str, content: BaseModel) -> ApprovalRequest:
        return ApprovalRequest(
            run_key=self._context.run_key,
            sequence=sequence,
            session_id=self._context.session_id,
            tool_name=self._context.tool_name,
            approvers=self._policy.approvers,
            text=text,
            preview=clip_text(text, self._policy.preview_length),
            timeout_s=self._policy.timeout_s,
            beyond_text=text_digest(content.model_dump_json()),
        )


class _Passed:
    """The gist of what was let through, with words where something was not."""

    def __init__(self) -> None:
        self._text = ClippedText(_GIST_CHARACTERS)
        self._withheld_here = 0
        self.withheld = 0
        """How many chunks were withheld in all."""

    def feed(self, text: str) -> None:
        """Take in what the reader gets next."""
        self._text.feed(self._gap() + text)
        self._withheld_here = 0

    def withhold(self) -> None:
        """Note that a chunk is missing here."""
        self.withheld += 1
        self._withheld_here += 1

    def gist(self, *, undecided: int) -> str:
        """Return the head and the tail of what passed, and how many chunks are not decided yet."""
        gap = self._gap() + _marker(undecided, "not decided yet")
        return (self._text.rendered(render_text) + gap).lstrip("\n" if not self._text.characters else "")

    def _gap(self) -> str:
        return _marker(self._withheld_here, "not approved")


def _marker(chunks: int, why: str) -> str:
    return f"\n[{chunks} chunk{'' if chunks == 1 else 's'} withheld: {why}]\n" if chunks else ""


def _decided(decision: Decision, request: ApprovalRequest, asked: M, edited: Callable[[str], M]) -> M:
    """Return what a decision lets through.

    Raises:
        ApprovalDenied: Nothing.
    """
    match decision:
        case Approve():
            return asked
        case Edit():
            try:
                return edited(decision.text)
            except ValueError as error:
                decision = Deny(by=decision.by, reason=f"the edited text does not fit: {_why(error)}")
                raise ApprovalDenied(_denial(decision, request)) from error
        case Deny():
            raise ApprovalDenied(_denial(decision, request))


def _denial(decision: Deny, request: ApprovalRequest) -> str:
    what = f"denied by {decision.by!r}" if decision.answered else "not approved (no answer)"
    return f"{request.subject} was {what}" + (f": {decision.reason}" if decision.reason else "")


def _why(error: ValueError) -> str:
    """Return what an error says, without the text that it is about."""
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(each["msg"] for each in error.errors(include_input=False))


def _is_passed(asked: asyncio.Task[Any]) -> bool:
    return not asked.cancelled() and asked.exception() is None


def _is_settled(asked: asyncio.Task[Any]) -> bool:
    """Return whether there was a decision, or none in time: otherwise it may be asked again."""
    return _is_passed(asked) or (not asked.cancelled() and isinstance(asked.exception(), ApprovalError))


def _outcome(asked: asyncio.Task[M]) -> M:
    if asked.cancelled():
        msg = "the session was closed before anybody decided"
        raise SessionClosed(msg)
    return asked.result()
