"""What cells ask for while they run: each question goes to the host, or gets the end of input at once."""

import asyncio
from typing import Final

import msgspec

from aeolus_sandbox.guest.executions import Execution, Executions
from aeolus_sandbox.guest.frames import InputReply, InputRequest
from aeolus_sandbox.guest.kernel_client import KernelConnection, Message
from aeolus_sandbox.guest.kernel_messages import MAX_ERROR_CHARACTERS, safe_line
from aeolus_sandbox.guest.pipes import ReplyWriter

_ANNOUNCED_LIMIT_S: Final = 5.0
_QUIET_MS: Final = 20
_QUIET_ROUNDS: Final = 200
"""How often a question lets output pass that is there before it, which a thread may never let end."""


class QuestionContent(msgspec.Struct):
    """Content of an `input_request` message."""

    prompt: str = ""
    password: bool = False


class Questions:
    """The questions of the cells, and their answers."""

    def __init__(self, executions: Executions, replies: ReplyWriter) -> None:
        self._executions = executions
        self._replies = replies
        self._heard = asyncio.Event()

    async def pump(self, connection: KernelConnection) -> None:
        """Pass on what the kernel asks, until cancelled."""
        while True:
            await connection.wait_question()
            for message in connection.take_questions():
                await self._take(message, connection)

    def answer(self, reply: InputReply, connection: KernelConnection) -> None:
        """Give an answer to the kernel, if the cell of that operation waits for one."""
        current = self._executions.current
        if current and current.op == reply.op and current.questions:
            current.questions -= 1
            current.question_announced = False
            connection.answer(reply.text)

    def announced(self, execution: Execution) -> None:
        """Note that all output of a cell has come that it made before it asked."""
        execution.question_announced = True
        self._heard.set()

    async def _take(self, message: Message, connection: KernelConnection) -> None:
        asking = self._asking(message)
        if asking is None:
            # Nobody will ever answer: a thread that a cell left running, or a kernel that asks without leave.
            connection.answer(None)
            return
        await self._let_output_pass(asking, connection)
        if self._executions.current is asking:
            asking.questions += 1
            self._replies.post_lines(_question_line(message, asking.op))

    def _asking(self, message: Message) -> Execution | None:
        current = self._executions.current
        asks = current and current.request.allow_stdin and message.parent_id == current.message_id
        return current if asks else None

    async def _let_output_pass(self, asking: Execution, connection: KernelConnection) -> None:
        # What the cell printed before it asked is on its way on another channel, or waits for the host to read.
        if connection.announces_questions:
            await self._wait_announced(asking)
            return
        for _ in range(_QUIET_ROUNDS):
            await self._replies.wait_room()
            if not await connection.wait_output(_QUIET_MS):
                return
            await asyncio.sleep(0)

    async def _wait_announced(self, asking: Execution) -> None:
        while not asking.question_announced:
            self._heard.clear()
            try:
                async with asyncio.timeout(_ANNOUNCED_LIMIT_S):
                    await self._heard.wait()
            except TimeoutError:
                if not self._replies.congested:  # the code has asked behind the kernel's back
                    return


def _question_line(message: Message, op: int) -> bytes:
    try:
        question = msgspec.convert(message.content, QuestionContent)
    except msgspec.ValidationError:
        question = QuestionContent()
    prompt = question.prompt[:MAX_ERROR_CHARACTERS]
    return safe_line(InputRequest(op=op, prompt=prompt, password=question.password))
