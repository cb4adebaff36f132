"""A Jupyter kernel that boots at once: the messages and the loop, and nothing of any language.

It knows the parts of the protocol that clients need (https://jupyter-client.readthedocs.io/en/stable/messaging.html),
and imports no jupyter_client, which would take most of the boot. One thread serves everything; a language tells
the loop which descriptors to watch, so that a cell under way blocks nothing.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TypeVar

import msgspec
import zmq

from aeolus_sandbox.guest.kernel_wire import Connection, Json, Request, Wire
from aeolus_sandbox.guest.parent_death import end_with_parent

_RUNNING_LOOK_MS: Final = 1000
"""How often the loop looks up while a cell runs; between cells it sleeps until something comes."""
_LINGER_MS: Final = 2000
_MESSAGES_HELD: Final = 100
_WAKES_READ: Final = 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LanguageInfo:
    """What a kernel says of itself."""

    name: str
    version: str
    mimetype: str
    file_extension: str


class Cell:
    """One piece of code under way; it ends with `succeed` or `fail`, and text can still come after that."""

    def __init__(self, kernel: "SmallKernel", request: Request, count: int) -> None:
        self._kernel = kernel
        self._request = request
        self._count = count

    @property
    def allows_stdin(self) -> bool:
        """Whether the client answers questions."""
        return self._request.content.get("allow_stdin") is True

    def write(self, stream: str, text: str) -> None:
        """Publish printed text; `stream` is `stdout` or `stderr`."""
        if text:
            self._kernel.publish("stream", {"name": stream, "text": text}, self._request)

    def show_result(self, data: Json) -> None:
        """Publish the cell's value, as a MIME bundle."""
        content = {"data": data, "metadata": {}, "execution_count": self._count}
        self._kernel.publish("execute_result", content, self._request)

    def ask(self, prompt: str, *, password: bool) -> None:
        """Ask the client for a line; the answer goes to `Interpreter.take_answer`."""
        self._kernel.ask({"prompt": prompt, "password": password}, self._request)

    def succeed(self, *, ends_kernel: bool = False) -> None:
        """End the cell without an error; `ends_kernel` says that the kernel ends with it, on purpose."""
        self._reply({"status": "ok", "user_expressions": {}}, ends_kernel=ends_kernel)

    def fail(
        self, name: str, value: str, traceback: Sequence[str] = (), *, ends_kernel: bool = False
    ) -> None:
        """End the cell with an error."""
        error = {"ename": name, "evalue": value, "traceback": list(traceback)}
        self._kernel.publish("error", error, self._request)
        self._reply({"status": "error", **error}, ends_kernel=ends_kernel)

    def _reply(self, content: Json, *, ends_kernel: bool) -> None:
        payload = [{"source": "ask_exit", "keepkernel": False}] if ends_kernel else []
        content |= {"execution_count": self._count, "payload": payload}
        self._kernel.end_cell(content, self._request)


class Interpreter(Protocol):
    """A language: it runs one cell at a time, and waits for nothing in any of these methods."""

    @property
    def info(self) -> LanguageInfo:
        """What it says of itself."""

    def start(self, cell: Cell, code: str) -> None:
        """Begin with a cell; the cell's end may come later."""

    def interrupt(self) -> None:
        """Interrupt the cell that runs, if one does; called at any moment but during `start`."""

    def take_answer(self, text: str) -> None:
        """Take the line that the cell has asked for."""


class SmallKernel:
    """The channels of one kernel and the loop that serves them."""

    def __init__(self, connection_file: Path) -> None:
        connection = msgspec.json.decode(connection_file.read_bytes(), type=Connection)
        self._wire = Wire(connection.key)
        self._context = zmq.Context()
        self._context.setsockopt(zmq.LINGER, _LINGER_MS)
        self._poller = zmq.Poller()
        self._callbacks: dict[Any, Callable[[], None]] = {}
        self._iopub = self._context.socket(zmq.PUB)
        # Wait for a slow reader instead of dropping output; the loop waits with it, and the code behind its pipe.
        self._iopub.setsockopt(zmq.XPUB_NODROP, 1)
        self._iopub.setsockopt(zmq.SNDHWM, _MESSAGES_HELD)
        self._iopub.bind(connection.address(connection.iopub_port))
        self._shell = self._bind(connection.address(connection.shell_port))
        self._control = self._bind(connection.address(connection.control_port))
        self._stdin = self._bind(connection.address(connection.stdin_port))
        self._start_heartbeat(connection.address(connection.hb_port))
        self._woken, self._waker = os.pipe()
        self._finished: deque[Callable[[], None]] = deque()
        self._cells = 0
        self._asks = False
        self._end: Callable[[], NoReturn] | None = None

    def run(self, interpreter: Interpreter) -> NoReturn:
        """Serve until the kernel is to end, at the latest with its parent."""
        self._interpreter = interpreter
        signal.signal(signal.SIGINT, lambda *_: interpreter.interrupt())
        # A signal that comes between the last look and the poll would otherwise be heard when the poll ends, if ever.
        os.set_blocking(self._waker, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self.watch(self._woken, self._run_finished)
        self.watch(self._control, partial(self._serve, self._control))
        self.watch(self._stdin, self._take_answer)
        self.watch(self._shell, partial(self._serve, self._shell))
        end_with_parent()
        while self._end is None:
            runs = self._shell not in self._callbacks
            for source, _ in self._poller.poll(_RUNNING_LOOK_MS if runs else None):
                if callback := self._callbacks.get(source):
                    callback()
        for socket in (self._shell, self._control, self._stdin, self._iopub):
            socket.close()
        self._context.term()  # what was said still arrives
        self._end()

    # For languages.

    def watch(self, source: Any, callback: Callable[[], None]) -> None:
        """Call back whenever a descriptor or socket is readable or closed."""
        self._poller.register(source, zmq.POLLIN)
        self._callbacks[source] = callback

    def unwatch(self, source: Any) -> None:
        """Watch a descriptor or socket no more; one that is not watched is left alone."""
        if self._callbacks.pop(source, None):
            self._poller.unregister(source)

    def run_in_thread(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Do what blocks in a thread, and hand the loop what it returned."""

        def run() -> None:
            self._finished.append(partial(done, work()))
            with suppress(BlockingIOError):  # full of wakes already
                os.write(self._waker, b"\0")

        threading.Thread(target=run, daemon=True).start()

    def stop(self, status: int) -> None:
        """End the process when all has been said: with an exit code, or, for a negative one, by that signal."""
        self._end = partial(_die, -status) if status < 0 else partial(os._exit, status)

    # For cells.

    def publish(self, kind: str, content: Json, request: Request) -> None:
        """Send a message to all clients."""
        self._iopub.send_multipart(self._wire.pack(kind, content, request, [kind.encode()]))

    def ask(self, content: Json, request: Request) -> None:
        """Send a question to the client whose request it is."""
        self._asks = True
        self._stdin.send_multipart(self._wire.pack("input_request", content, request, request.identities))

    def end_cell(self, content: Json, request: Request) -> None:
        """Send the reply to a cell, and take the next."""
        self._asks = False
        self._reply(self._shell, content, request)
        self.watch(self._shell, partial(self._serve, self._shell))

    # Requests.

    def _serve(self, socket: zmq.Socket[bytes]) -> None:
        request = self._wire.unpack(socket.recv_multipart())
        if request is None:
            return
        self.publish("status", {"execution_state": "busy"}, request)
        if request.kind == "execute_request":
            self._execute(request)
        else:
            self._reply(socket, self._answer(request.kind), request)

    def _execute(self, request: Request) -> None:
        self.unwatch(self._shell)  # the next one waits there until this one has ended
        self._cells += 1
        code = str(request.content.get("code", ""))
        # From this message on the client takes an interrupt to be heard: it waits until there is what to interrupt.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self.publish("execute_input", {"code": code, "execution_count": self._cells}, request)
        self._interpreter.start(Cell(self, request, self._cells), code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def _answer(self, kind: str) -> Json:
        if kind == "kernel_info_request":
            return self._description()
        if kind == "interrupt_request":
            self._interpreter.interrupt()
        elif kind == "shutdown_request":
            self.stop(0)
        else:
            return {"status": "error", "ename": "NotImplementedError", "evalue": kind, "traceback": []}
        return {"status": "ok"}

    def _description(self) -> Json:
        info = self._interpreter.info
        return {
            "status": "ok",
            "protocol_version": "5.3",
            "implementation": f"aeolus-{info.name}",
            "implementation_version": info.version,
            "language_info": {name: getattr(info, name) for name in LanguageInfo.__slots__},
            "banner": "",
            "help_links": [],
        }

    def _reply(self, socket: zmq.Socket[bytes], content: Json, request: Request) -> None:
        kind = request.kind.removesuffix("_request") + "_reply"
        socket.send_multipart(self._wire.pack(kind, content, request, request.identities))
        self.publish("status", {"execution_state": "idle"}, request)

    def _take_answer(self) -> None:
        message = self._wire.unpack(self._stdin.recv_multipart())
        if message and message.kind == "input_reply" and self._asks:
            self._asks = False
            self._interpreter.take_answer(str(message.content.get("value", "")))

    def _run_finished(self) -> None:
        os.read(self._woken, _WAKES_READ)
        while self._finished:
            self._finished.popleft()()

    def _bind(self, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.ROUTER)
        socket.bind(address)
        return socket

    def _start_heartbeat(self, address: str) -> None:
        socket = self._bind(address)

        def echo() -> None:
            with suppress(zmq.ContextTerminated):
                zmq.proxy(socket, socket)
            socket.close(linger=0)

        threading.Thread(target=echo, daemon=True).start()


def _die(number: int) -> NoReturn:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # a signal that was blocked, or does not kill
