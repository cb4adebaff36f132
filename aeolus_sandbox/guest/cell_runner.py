"""Runs cells in a kernel, one at a time, and turns what the kernel says into replies."""

import asyncio
import signal
from collections.abc import Iterable
from typing import Final

import msgspec

from aeolus_sandbox.guest.executions import Execution, Executions
from aeolus_sandbox.guest.frames import (
    Done,
    Execute,
    Frame,
    FrameError,
    InputReply,
    KernelDied,
    Ready,
)
from aeolus_sandbox.guest.kernel_client import ANNOUNCEMENT, KernelConnection, Message
from aeolus_sandbox.guest.kernel_messages import OutputLines, ReplyContent, error_line, safe_line
from aeolus_sandbox.guest.kernel_process import KernelProcess
from aeolus_sandbox.guest.pipes import ReplyWriter
from aeolus_sandbox.guest.questions import Questions
from aeolus_sandbox.guest.workspace import Workspace

_HALF_ENDED_S: Final = 2.0
"""How long the second sign of a cell's end may lag behind the first and behind the last output."""
_INTERRUPTED_S: Final = 0.3
"""The same when the cell was interrupted and only its reply is missing, which ipykernel sends first."""
_AGAIN_S: Final = 0.25
"""When a cell that was interrupted before it began is interrupted again, should it run."""
_EXIT_S: Final = 5.0
"""How long a kernel may live on after it was asked to exit."""
_DRAIN_QUIET_MS: Final = 50
"""How long nothing must come from a dead kernel until everything is taken to have come."""


class CellRunner:
    """The cells of all kernels that follow one another; `serve` gives it the kernel of the moment."""

    def __init__(self, replies: ReplyWriter, workspace: Workspace) -> None:
        """Write to `replies` what the cells say, and what they have changed in the workspace."""
        self._replies = replies
        self._workspace = workspace
        self._executions = Executions()
        self._questions = Questions(self._executions, replies)
        self._lines = OutputLines()
        self._process: KernelProcess | None = None
        self._connection: KernelConnection | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._last_output = 0.0

    def execute(self, request: Execute) -> None:
        """Queue a cell."""
        if self._executions.add(request):
            self._begin_next()
        else:
            self._replies.post(Done(op=request.op, status="refused", message="too many cells wait already"))

    def answer(self, reply: InputReply) -> None:
        """Answer a question of the cell that runs; without one, do nothing."""
        if self._connection:
            self._questions.answer(reply, self._connection)

    def interrupt(self, op: int) -> None:
        """Interrupt the cell of that operation, or, for 0, the one that runs; else do nothing."""
        current = self._executions.current
        if current and op in (0, current.op):
            current.interrupted = True
            # A kernel ignores the signal until it has begun with the cell: then `_note_begun` sends it.
            if current.begun:
                self._send_interrupt()
        elif op and self._executions.withdraw(op):
            self._replies.post(Done(op=op, status="aborted", message="interrupted before it ran"))

    async def serve(self, process: KernelProcess, connection: KernelConnection, ready: Ready) -> None:
        """Announce the kernel and run cells in it, until cancelled."""
        self._process, self._connection = process, connection
        self._executions.held = False
        self._replies.post_lines(safe_line(ready))
        self._begin_next()
        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(self._pump_output(connection))
            pumps.create_task(self._pump_replies(connection))
            pumps.create_task(self._questions.pump(connection))

    async def conclude(self, process: KernelProcess, *, killed: bool) -> None:
        """Report the end of a kernel that ended or was killed, after all that it had still said."""
        if self._connection:
            await self._drain(self._connection)
        self._process = self._connection = None
        self._cancel_timer()
        lost, self._executions.current = self._executions.current, None
        died = KernelDied(
            op=lost.op if lost else 0,
            exit_code=process.exit_code,
            signal=process.signal,
            out_of_memory=process.ran_out_of_memory,
            stderr_tail=process.stderr_tail,
        )
        self._replies.post(died)
        # Unless it was an `exit()`, the state that the cells behind it stand on is lost unexpectedly.
        if killed or not self._executions.held:
            for op in self._executions.withdraw_all():
                self._replies.post(Done(op=op, status="aborted", message="the kernel died before it ran"))
        self._executions.held = True

    # Output and replies.

    async def _pump_output(self, connection: KernelConnection) -> None:
        while True:
            await connection.wait_output()
            self._handle_output(connection.take_output())
            await self._replies.wait_room()

    async def _pump_replies(self, connection: KernelConnection) -> None:
        while True:
            await connection.wait_reply()
            self._handle_replies(connection.take_replies())

    async def _drain(self, connection: KernelConnection) -> None:
        while await connection.wait_output(_DRAIN_QUIET_MS):
            self._handle_output(connection.take_output())
            await self._replies.wait_room()
        self._handle_replies(connection.take_replies())

    def _handle_output(self, messages: Iterable[Message]) -> None:
        """Handle the output of one turn; what it amounts to is written at once."""
        ended: Execution | None = None
        for message in messages:
            self._last_output = self._loop.time()
            current = self._executions.current
            own = current if current and message.parent_id == current.message_id else None
            if own:
                self._note_begun(own, message)
            if own and message.kind == "status":
                own.idle = own.idle or message.says_idle
                ended = own if own.idle else ended
            elif own and message.kind == ANNOUNCEMENT:
                self._questions.announced(own)
            else:
                self._add_output(message, own)
        self._replies.post_lines(self._lines.take())
        if ended:
            self._end_if_ended(ended)

    def _add_output(self, message: Message, own: Execution | None) -> None:
        op = self._executions.op_of(message.parent_id)
        if own and message.kind == "error":
            own.error_shown = True
        try:
            if message.kind:
                self._lines.add(message.kind, message.content, op)
            else:
                current = self._executions.current
                self._lines.add_note(f"left out {message.content}", current.op if current else 0)
        except (msgspec.ValidationError, FrameError) as error:
            self._lines.add_note(f"left out output that makes no sense: {str(error)[:200]}", op)

    def _note_begun(self, execution: Execution, message: Message) -> None:
        # `busy` comes too early: ipykernel ignores the signal until just before it says `execute_input`.
        if execution.begun or message.kind == "status":
            return
        execution.begun = True
        if execution.interrupted:
            self._send_interrupt()
            # A signal that comes between a program's last look and its sleep wakes nobody, and this one comes just
            # when the cell begins: once more, when it runs.
            self._loop.call_later(_AGAIN_S, self._interrupt_again, execution)

    def _interrupt_again(self, execution: Execution) -> None:
        if self._executions.current is execution and not execution.idle:
            self._send_interrupt()

    def _send_interrupt(self) -> None:
        if self._process and self._connection:
            self._connection.interrupt(self._process)

    def _handle_replies(self, messages: Iterable[Message]) -> None:
        for message in messages:
            current = self._executions.current
            if message.kind == "execute_reply" and current and message.parent_id == current.message_id:
                try:
                    current.reply = msgspec.convert(message.content, ReplyContent)
                except msgspec.ValidationError:
                    current.reply = ReplyContent(
                        ename="KernelError", evalue="the kernel's reply makes no sense"
                    )
                self._end_if_ended(current)

    # The course of cells.

    def _begin_next(self) -> None:
        execution = self._executions.take_next()
        if execution and self._connection:
            self._executions.sent(execution, self._connection.execute(execution.request))

    def _end_if_ended(self, execution: Execution) -> None:
        if execution.ended:
            self._end(execution)
        elif self._timer is None:
            self._timer = self._loop.call_later(_lag_s(execution), self._end_half_ended, execution)

    def _end_half_ended(self, execution: Execution) -> None:
        # An interrupt in the wrong moment makes ipykernel drop the reply; code can also break a channel.
        self._timer = None
        if self._connection:  # what has come and was not heard of: the sockets tell of it once
            self._handle_output(self._connection.take_output())
            self._handle_replies(self._connection.take_replies())
        if self._executions.current is not execution or self._timer is not None:
            return  # it has ended, or waits anew
        quiet_s = self._loop.time() - self._last_output
        if quiet_s < _lag_s(execution) or self._replies.congested:
            self._end_if_ended(execution)
        else:
            self._end(execution)

    def _end(self, execution: Execution) -> None:
        self._cancel_timer()
        reply = execution.reply or ReplyContent(ename="KernelError", evalue="the kernel gave no reply")
        if execution.status == "error" and not execution.error_shown:
            self._replies.post_lines(error_line(reply, execution.op))
        self._tell_end(execution)
        self._executions.current = None
        if reply.asks_exit and self._process:
            self._executions.held = True
            self._timer = self._loop.call_later(_EXIT_S, self._process.send_signal, signal.SIGKILL)
        self._begin_next()

    def _tell_end(self, execution: Execution) -> None:
        listed = execution.request.list_changes
        said: list[Frame] = [Done(op=execution.op, status=execution.status, changes_follow=listed)]
        if listed:
            if not self._workspace.looks_quickly:  # time must not run out for code that has ended
                self._replies.post(said.pop())
            said.append(self._workspace.changes(execution.op))
        self._replies.post(*said)

    def _cancel_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None


def _lag_s(execution: Execution) -> float:
    return _INTERRUPTED_S if execution.interrupted and execution.idle else _HALF_ENDED_S
