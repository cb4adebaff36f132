"""What the tests of `Manual` share: approvals where the test decides, and a view over lines."""

import asyncio
from typing import Any, Self

from pydantic import BaseModel

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import (
    ApprovalError,
)
from aeolus_sandbox.streaming.approval import ApprovalRequest, Approve, Decision, Deny
from aeolus_sandbox.streaming.chunks import JsonCodec, OutputChunk
from aeolus_sandbox.streaming.policies import Manual, PolicyView
from aeolus_sandbox.streaming.session import StreamingToolSession
from aeolus_sandbox.streaming.spool import Spool
from tests.unit.policy_contexts import policy_context

YES = Approve(by="role:admin")
NO = Deny(by="role:admin", reason="too much")
FOREVER_S = 3600.0


class Line(OutputChunk):
    text: str


class Plain(BaseModel):
    said: str


class WithOutput(BaseModel):
    code: int = 0
    output: str = "everything, also what was denied"

    def with_output(self, output: str) -> Self:
        return self.model_copy(update={"output": output})


class Office:
    """Approvals where the test decides."""

    def __init__(self, *prepared: Decision | Exception) -> None:
        self.asked: list[ApprovalRequest] = []
        self.withdrawn: list[ApprovalRequest] = []
        self.expired: list[ApprovalRequest] = []
        self.prepared = list(prepared)
        self.late: Decision | None = None
        self.answer = asyncio.Event()
        self.changed = asyncio.Event()

    async def decide(self, request: ApprovalRequest) -> Decision:
        self.asked.append(request)
        self.changed.set()
        while not self.prepared:
            self.answer.clear()
            await self.answer.wait()
        decision = self.prepared.pop(0)
        if isinstance(decision, Exception):
            raise decision
        return decision

    async def expire(self, request: ApprovalRequest) -> Decision | None:
        self.expired.append(request)
        return self.late

    async def withdraw(self, request: ApprovalRequest) -> None:
        self.withdrawn.append(request)

    def say(self, decision: Decision) -> None:
        self.prepared.append(decision)
        self.answer.set()

    async def wait_asked(self, times: int = 1) -> None:
        while len(self.asked) < times:
            self.changed.clear()
            await self.changed.wait()


def line_spool(*lines: str, ended: bool = True) -> Spool[Line]:
    codec = JsonCodec(Line)
    spool: Spool[Line] = Spool(codec, capacity_bytes=1_000_000)
    for line in lines:
        spool.append(*codec.encode(Line(text=line)))
    if ended:
        spool.end()
    return spool


def manual_view(
    spool: Spool[Any], office: Any, tasks: BackgroundTasks, policy: Manual | None = None, **context: Any
) -> PolicyView[Any]:
    policy = policy or Manual(timeout_s=FOREVER_S)
    return policy.view(spool, policy_context(approvals=office, tasks=tasks, **context))


async def next_of(readable: PolicyView[Any] | StreamingToolSession[Any, Any]) -> Any:
    chunk = await readable.next_chunk()
    assert chunk is not None
    return chunk


async def texts_of(view: PolicyView[Any]) -> list[str]:
    """Return what comes, and the names of the errors that come in its place."""
    texts = list[str]()
    while True:
        try:
            chunk = await view.next_chunk()
        except ApprovalError as error:
            texts.append(type(error).__name__)
            continue
        if chunk is None:
            return texts
        texts.append(chunk.text)
