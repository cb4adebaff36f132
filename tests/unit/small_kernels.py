"""A small kernel as a local process, as a Jupyter client sees it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import zmq
from jupyter_client.blocking.client import BlockingKernelClient

from aeolus_sandbox.guest.kernel_runtime import KernelRuntime
from aeolus_sandbox.guest.languages import LANGUAGES

if TYPE_CHECKING:
    from jupyter_client.connect import KernelConnectionInfo

LIMIT_S: Final = 30.0


@dataclass
class Ran:
    """What came of one cell; `reply` stays empty when the kernel died."""

    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)

    def text(self, name: str = "stdout") -> str:
        return "".join(content["text"] for kind, content in self.messages if content.get("name") == name)

    @property
    def error(self) -> tuple[str, str] | None:
        found = [(each["ename"], each["evalue"]) for kind, each in self.messages if kind == "error"]
        return found[0] if found else None

    @property
    def results(self) -> list[dict[str, Any]]:
        return [content["data"] for kind, content in self.messages if kind == "execute_result"]


class SmallKernelProcess:
    """One kernel process, with a client of its own."""

    def __init__(self, language: str, workspace: Path) -> None:
        self._runtime = KernelRuntime()
        command = LANGUAGES[language]
        self._runtime.prepare(command.transport)
        file = str(self._runtime.connection_file)
        argv = [part.replace("{connection_file}", file) for part in command.argv]
        self.process = subprocess.Popen(argv, cwd=workspace, stderr=subprocess.PIPE, start_new_session=True)
        self.workspace = workspace
        self._context = zmq.Context()
        self._context.setsockopt(zmq.RCVHWM, 10)  # what the client does not read waits in the kernel
        self.client = BlockingKernelClient(context=self._context)
        self.client.load_connection_info(cast("KernelConnectionInfo", self._runtime.connection))
        # A kernel that boots slowly on a busy machine is not dead; its process tells whether it is.
        self.client.hb_channel.time_to_dead = LIMIT_S
        self.client.start_channels()
        self.late: list[tuple[str, str, dict[str, Any]]] = []
        """Messages that belong to no cell that was waited for: parent, kind, content."""

    def ready(self) -> None:
        self.client.wait_for_ready(timeout=LIMIT_S)

    def start(self, code: str, *, allow_stdin: bool = False) -> str:
        return str(self.client.execute(code, allow_stdin=allow_stdin))

    def run(self, code: str, *, allow_stdin: bool = False) -> Ran:
        return self.finish(self.start(code, allow_stdin=allow_stdin))

    def finish(self, message_id: str) -> Ran:
        """Wait until the cell has ended, or the kernel has died and everything has come that it said."""
        ran = Ran()
        self.until(message_id, ran, lambda kind, content: content.get("execution_state") == "idle")
        with suppress(Exception):
            while not ran.reply:
                message = self.client.get_shell_msg(timeout=LIMIT_S if self.process.poll() is None else 0.5)
                if message["parent_header"].get("msg_id") == message_id:
                    ran.reply = message["content"]
        return ran

    def until(self, message_id: str, ran: Ran, wanted: Callable[[str, dict[str, Any]], bool]) -> None:
        """Collect the cell's output up to the first message that is wanted, or to the kernel's death."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            socket = self.client.iopub_channel.socket
            if not socket.poll(100):
                if self.process.poll() is not None:
                    return
                continue
            message = self.client.get_iopub_msg(timeout=1)
            kind, content = message["msg_type"], message["content"]
            parent = message["parent_header"].get("msg_id")
            if parent != message_id:
                self.late.append((str(parent), kind, content))
                continue
            ran.messages.append((kind, content))
            if wanted(kind, content):
                return
        raise AssertionError(f"the kernel says nothing more: {ran}")

    def says(self, message_id: str, text: str) -> Ran:
        """Wait until the cell has printed a text."""
        ran = Ran()
        self.until(message_id, ran, lambda *_: text in ran.text() + ran.text("stderr"))
        assert text in ran.text() + ran.text("stderr")
        return ran

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def close(self) -> None:
        self.client.stop_channels()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=LIMIT_S)
        if self.process.stderr:
            self.process.stderr.close()
        self._context.destroy(linger=0)
        self._runtime.remove()
