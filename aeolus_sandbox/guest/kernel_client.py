"""The guest's conversation with its kernel, over ZMQ."""

import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
import zmq
import zmq.asyncio

from aeolus_sandbox.guest.frames import Execute
from aeolus_sandbox.guest.kernel_wire import Connection, Json, Wire

if TYPE_CHECKING:
    from aeolus_sandbox.guest.console import Console
    from aeolus_sandbox.guest.kernel_process import KernelProcess

_TURN_MESSAGES: Final = 256
_TURN_BYTES: Final = 1024 * 1024
_IDLE_POLL_MS: Final = 5000
_READY_POLL_MS: Final = 1000
_SUBSCRIPTION_POLL_MS: Final = 200
_RECONNECT_MS: Final = 10
_MESSAGES_HELD: Final = 100
ANNOUNCEMENT: Final = "aeolus_question"
"""Kind of the message with which a kernel of ours ends the output before a question."""
_END_OF_INPUT: Final = "\x04"
"""Ctrl-D, which ipykernel takes for the end of input; the messages of Jupyter have no other word for it."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the kernel; `kind` is empty when it could not be read, and `content` says why."""

    kind: str
    parent_id: str
    content: Any

    @property
    def says_idle(self) -> bool:
        """Whether it is the kernel's word that it is done with a request."""
        status = self.content if self.kind == "status" and isinstance(self.content, dict) else {}
        return status.get("execution_state") == "idle"


def open_context() -> zmq.asyncio.Context:
    """Return the messaging context; one serves all kernels, so that a restart needs no new thread."""
    context = zmq.asyncio.Context()
    # The sockets are connected before the kernel has made its own; the default of 100 ms would delay the boot.
    context.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    # What exceeds this waits in the kernel, whose memory the limit is meant for.
    context.setsockopt(zmq.RCVHWM, _MESSAGES_HELD)
    return context


class KernelConnection:
    """The channels to one kernel: requests and replies on the shell, output on iopub, questions on stdin."""

    announces_questions: ClassVar[bool] = False
    """Whether the kernel says `ANNOUNCEMENT` on its output channel before it asks: the two channels have no order."""

    def __init__(
        self, context: zmq.asyncio.Context, info: dict[str, Any], console: "Console | None" = None
    ) -> None:
        self._console = console
        self._context = context
        self._address = msgspec.convert(info, Connection)
        self._wire = Wire(self._address.key, username="guest")
        # The kernel sends a question to the one of that name which has sent the cell.
        self._identity = secrets.token_hex(16).encode()
        self._shell = self._connect(zmq.DEALER, self._address.shell_port)
        self._iopub = self._connect(zmq.SUB, self._address.iopub_port)
        self._stdin = self._connect(zmq.DEALER, self._address.stdin_port)
        self._control: zmq.asyncio.Socket | None = None

    def execute(self, request: Execute) -> str:
        """Send a piece of code and return the id of the message."""
        content = _cell(request.code) | {"allow_stdin": request.allow_stdin}
        metadata = {"aeolus_chart_data": True} if request.chart_data else {}
        message_id = self._send(self._shell, "execute_request", content, metadata)
        if self._console:
            self._console.begin(message_id)
        return message_id

    def answer(self, text: str | None) -> None:
        """Answer a question of the kernel with a line; None is the end of input."""
        self._send(self._stdin, "input_reply", {"value": _END_OF_INPUT if text is None else text})

    def interrupt(self, process: "KernelProcess") -> None:
        """Interrupt the code that runs."""
        process.send_signal(signal.SIGINT)

    async def wait_ready(self) -> dict[str, Any]:
        """Return the kernel's description once it answers and its output reaches us.

        An answer alone does not prove the second: what a kernel says before the subscription has reached it is
        lost, https://github.com/jupyter/jupyter_client/issues/593 .
        """
        asked: set[str] = set()
        description: dict[str, Any] | None = None
        heard = False
        while description is None or not heard:
            asked.add(self._send(self._shell, "kernel_info_request", {}))
            await self._poll(self._shell, _READY_POLL_MS)
            for reply in self.take_replies():
                if reply.kind == "kernel_info_reply":
                    description = dict(reply.content)
            await self._poll(self._iopub, _SUBSCRIPTION_POLL_MS)
            heard = any(message.parent_id in asked for message in self.take_output()) or heard
        return description

    async def run_silently(self, code: str) -> None:
        """Run code that counts as no cell, and drop what it says; call it before anybody else takes messages."""
        asked = self._send(
            self._shell, "execute_request", _cell(code) | {"silent": True, "store_history": False}
        )
        replied = idle = False
        while not (replied and idle):
            await self._poll(self._iopub if replied else self._shell, _READY_POLL_MS)
            replied = any(reply.parent_id == asked for reply in list(self.take_replies())) or replied
            said = list(self.take_output())
            idle = any(message.parent_id == asked and message.says_idle for message in said) or idle

    async def wait_output(self, timeout_ms: int = _IDLE_POLL_MS) -> bool:
        """Wait until there may be output to take; cancelling loses nothing."""
        if self._console:
            return await self._console.wait(self._iopub, timeout_ms)
        return await self._poll(self._iopub, timeout_ms)

    async def wait_reply(self, timeout_ms: int = _IDLE_POLL_MS) -> bool:
        """Wait until there may be a reply to take; cancelling loses nothing."""
        return await self._poll(self._shell, timeout_ms)

    async def wait_question(self, timeout_ms: int = _IDLE_POLL_MS) -> bool:
        """Wait until there may be a question to take; cancelling loses nothing."""
        return await self._poll(self._stdin, timeout_ms)

    def take_output(self) -> Iterator[Message]:
        """Yield the output that has arrived, no more than is good for one turn of the loop."""
        messages = self._take(self._iopub)
        return self._console.take(messages) if self._console else messages

    def take_replies(self) -> Iterator[Message]:
        """Yield the replies that have arrived."""
        return self._take(self._shell)

    def take_questions(self) -> Iterator[Message]:
        """Yield the questions that have arrived."""
        return self._take(self._stdin)

    def close(self) -> None:
        """Close the channels; a second call does nothing."""
        for socket in (self._shell, self._iopub, self._stdin, self._control):
            if socket:
                socket.close(linger=0)
        if self._console:
            self._console.close()

    def _send_control(self, kind: str) -> None:
        # Most kernels are never spoken to on this channel.
        self._control = self._control or self._connect(zmq.DEALER, self._address.control_port)
        self._send(self._control, kind, {})

    def _connect(self, kind: int, port: int) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        if kind == zmq.SUB:
            socket.subscribe(b"")
        else:
            socket.setsockopt(zmq.IDENTITY, self._identity)
        socket.connect(self._address.address(port))
        return socket

    def _send(
        self, socket: zmq.asyncio.Socket, kind: str, content: Json, metadata: Json | None = None
    ) -> str:
        message_id, parts = self._wire.ask(kind, content, metadata)
        _blocking(socket).send_multipart(parts)
        return message_id

    async def _poll(self, socket: zmq.asyncio.Socket, timeout_ms: int) -> bool:
        # Polling, unlike receiving, can be cancelled without losing a message.
        return bool(await socket.poll(timeout_ms))

    def _take(self, source: zmq.asyncio.Socket) -> Iterator[Message]:
        socket = _blocking(source)
        taken_bytes = 0
        for _ in range(_TURN_MESSAGES):
            try:
                parts = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield self._read(parts)
            taken_bytes += sum(map(len, parts))
            if taken_bytes > _TURN_BYTES:
                return

    def _read(self, parts: list[bytes]) -> Message:
        try:
            return Message(*self._wire.read(parts))
        except Exception as error:  # noqa: BLE001 - the code can send anything: whatever it is, it is only unreadable
            return Message("", "", f"a message of {sum(map(len, parts))} bytes: {type(error).__name__}")


class AnnouncingConnection(KernelConnection):
    """The channels to a kernel that announces its questions."""

    announces_questions = True


def _cell(code: str) -> Json:
    return {
        "code": code,
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": False,
    }


def _blocking(socket: zmq.asyncio.Socket) -> zmq.Socket[bytes]:
    """Return the same socket with calls that return at once, and not with futures."""
    return zmq.Socket.shadow(socket.underlying)
