"""Somebody at a terminal or a pipe, who types what the test says and sees what the console approver shows."""

import asyncio
import io
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TextIO

from aeolus_sandbox.approvers.console import ConsoleApprover
from aeolus_sandbox.streaming.approval import ApprovalRequest, Decision, Deny

LIMIT_S = 20
PROMPT = "[y]es / [n]o / [e]dit: "


def new_request(text: str = "the text\n", **fields: Any) -> ApprovalRequest:
    defaults: dict[str, Any] = {
        "run_key": "run",
        "sequence": 3,
        "session_id": "session-1",
        "tool_name": "terminal",
        "approvers": ("role:admin", "role:ops"),
        "text": text,
        "preview": text,
        "timeout_s": 60.0,
    }
    return ApprovalRequest(**(defaults | fields))


class Screen(io.StringIO):
    """What was shown; waits for a text to appear."""

    def __init__(self) -> None:
        super().__init__()
        self._grown = threading.Condition()

    def write(self, text: str) -> int:
        with self._grown:
            written = super().write(text)
            self._grown.notify_all()
        return written

    async def wait_shown(self, text: str, times: int = 1) -> None:
        def shown() -> bool:
            return self.getvalue().count(text) >= times

        def wait() -> bool:
            with self._grown:
                return self._grown.wait_for(shown, LIMIT_S)

        assert await asyncio.to_thread(wait), self.getvalue()


class Seat:
    """Somebody at a terminal or at a pipe: what is read from, and what types into it."""

    def __init__(self, reading: int, typing: int) -> None:
        self.stdin: TextIO = os.fdopen(reading, "r")
        self.typing = typing
        self.screen = Screen()
        self.approver = ConsoleApprover(stdin=self.stdin, stderr=self.screen)

    def type(self, data: bytes) -> None:
        os.write(self.typing, data)

    def leave(self) -> None:
        """Close the typing side."""
        if self.typing >= 0:
            os.close(self.typing)
            self.typing = -1

    async def ask(
        self, *steps: bytes | Callable[[], None], request: ApprovalRequest | None = None
    ) -> Decision:
        """Ask, and take the steps once the question has appeared."""
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            asked = self.screen.getvalue().count(PROMPT)
            asking = group.create_task(self.approver.decide(request or new_request()))
            await self.screen.wait_shown(PROMPT, asked + 1)
            for step in steps:
                if isinstance(step, bytes):
                    self.type(step)
                else:
                    step()
            return await asking


def wait_readable(stream: IO[str]) -> None:
    assert select.select([stream.fileno()], [], [], LIMIT_S)[0]


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_no_answer(decision: Decision) -> bool:
    return isinstance(decision, Deny) and not decision.answered
