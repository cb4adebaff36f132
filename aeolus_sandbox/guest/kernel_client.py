"""The guest's conversation with its kernel, over jupyter_client."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import zmq
import zmq.asyncio
from jupyter_client.asynchronous.client import AsyncKernelClient

from aeolus_sandbox.guest.frames import Execute

if TYPE_CHECKING:
    from jupyter_client.connect import KernelConnectionInfo

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
        self._client = AsyncKernelClient(context=context)
        self._client.load_connection_info(cast("KernelConnectionInfo", info))
        self._client.start_channels(stdin=True, hb=False, control=False)

    def execute(self, request: Execute) -> str:
        """Send a piece of code and return the id of the message."""
        content = {
            "code": request.code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": request.allow_stdin,
            "stop_on_error": False,
        }
        metadata = {"aeolus_chart_data": True} if request.chart_data else {}
        message = self._client.session.msg("execute_request", content, metadata=metadata)
        self._client.shell_channel.send(message)
        message_id = str(message["header"]["msg_id"])
        if self._console:
            self._console.begin(message_id)
        return message_id

    def answer(self, text: str | None) -> None:
        """Answer a question of the kernel with a line; None is the end of input."""
        self._client.input(_END_OF_INPUT if text is None else text)

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
            asked.add(self._client.kernel_info())
            await self._poll(self._client.shell_channel, _READY_POLL_MS)
            for reply in self.take_replies():
                if reply.kind == "kernel_info_reply":
                    description = dict(reply.content)
            await self._poll(self._client.iopub_channel, _SUBSCRIPTION_POLL_MS)
            heard = any(message.parent_id in asked for message in self.take_output()) or heard
        return description

    async def wait_output(self, timeout_ms: int = _IDLE_POLL_MS) -> bool:
        """Wait until there may be output to take; cancelling loses nothing."""
        if self._console:
            return await self._console.wait(self._client.iopub_channel.socket, timeout_ms)
        return await self._poll(self._client.iopub_channel, timeout_ms)

    async def wait_reply(self, timeout_ms: int = _IDLE_POLL_MS) -> bool:
        """Wait until there may be a reply to take; cancelling loses nothing."""
        return await self._poll(self._client.shell_channel, timeout_ms)

    async def wait_question(self, timeout_ms: int = _IDLE_POLL_MS) -> bool:
        """Wait until there may be a question to take; cancelling loses nothing."""
        return await self._poll(self._client.stdin_channel, timeout_ms)

    def take_output(self) -> Iterator[Message]:
        """Yield the output that has arrived, no more than is good for one turn of the loop."""
        messages = self._take(self._client.iopub_channel)
        return self._console.take(messages) if self._console else messages

    def take_replies(self) -> Iterator[Message]:
        """Yield the replies that have arrived."""
        return self._take(self._client.shell_channel)

    def take_questions(self) -> Iterator[Message]:
        """Yield the questions that have arrived."""
        return self._take(self._client.stdin_channel)

    def close(self) -> None:
        """Close the channels; a second call does nothing."""
        self._client.stop_channels()
        if self._console:
            self._console.close()

    async def _poll(self, channel: Any, timeout_ms: int) -> bool:
        # Polling, unlike receiving, can be cancelled without losing a message.
        return bool(await channel.socket.poll(timeout_ms))

    def _take(self, channel: Any) -> Iterator[Message]:
        socket: zmq.Socket[bytes] = zmq.Socket.shadow(channel.socket.underlying)
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
        session = self._client.session
        try:
            message = session.deserialize(session.feed_identities(parts)[1])
            parent_id = str(message["parent_header"].get("msg_id", ""))
            return Message(str(message["msg_type"]), parent_id, message["content"])
        except Exception as error:  # noqa: BLE001 - the code can send anything: whatever it is, it is only unreadable
            return Message("", "", f"a message of {sum(map(len, parts))} bytes: {type(error).__name__}")


class AnnouncingConnection(KernelConnection):
    """The channels to a kernel that announces its questions."""

    announces_questions = True
