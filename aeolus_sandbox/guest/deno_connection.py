"""What Deno's kernel needs beside its channels: a pipe for output, words for silent failures, a careful interrupt.

Facts of Deno 2.9 (`cli/js/jupyter_kernel.js` in its sources), each of which was seen:
- Output passes a queue without a limit and can arrive after the end of its cell, or under the next one. So the
  prelude sends all of it through a pipe, which keeps it in order and makes a fast cell wait for a slow reader.
- Code that cannot be parsed, or whose `npm:` import cannot be had, fails with "Execution failed" and no reason.
- SIGINT kills the process. An interrupt request ends a running loop and keeps the state, but a cell that awaits
  something neither ends nor ever lets another run.
- A cell's value that JSON has no word for (a bigint, NaN, Infinity, -0) is dropped before any of our code sees it;
  printed, or inside an object, it shows.
"""

import asyncio
import json
import re
import signal
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import zmq
import zmq.asyncio

from aeolus_sandbox.guest.frames import Execute
from aeolus_sandbox.guest.kernel_client import KernelConnection, Message
from aeolus_sandbox.guest.memory_events import memory_limit_bytes
from aeolus_sandbox.guest.output_pipe import OutputPipe

if TYPE_CHECKING:
    from aeolus_sandbox.guest.console import Console
    from aeolus_sandbox.guest.kernel_process import KernelProcess

PRELUDE: Final = Path("/usr/local/share/aeolus/deno_prelude.js")
_HEAP_SHARE: Final = 0.75
_OUTSIDE_HEAP_BYTES: Final = 272 * 1024 * 1024
"""How much of the container's memory must be left beside V8's heap: an idle kernel with its guest takes 200 MiB."""
_LEAST_HEAP_BYTES: Final = 96 * 1024 * 1024
"""With less, Deno does not even boot; a container this small runs into its own limit instead."""


def _v8_flags() -> dict[str, str]:
    """Return the variable with V8's flags; an empty one would be an unknown flag."""
    # Left alone, V8 sizes its heap by the machine: it would meet the container's limit with garbage not collected.
    limit = memory_limit_bytes()
    if limit is None:
        return {}
    heap = max(_LEAST_HEAP_BYTES, min(int(limit * _HEAP_SHARE), limit - _OUTSIDE_HEAP_BYTES))
    return {"DENO_V8_FLAGS": f"--max-old-space-size={heap >> 20}"}


DENO_ENVIRONMENT: Final = {
    "DENO_DIR": "{folder}/deno",
    "DENO_NO_PROMPT": "1",
    "DENO_NO_UPDATE_CHECK": "1",
    "NO_COLOR": "1",
    **_v8_flags(),
}
_IDLE_POLL_MS: Final = 5000
_HEED_S: Final = 1.0
"""How long an interrupted kernel may take to prove that it still works, before it gets the signal that ends it."""
_HIDDEN_REMEMBERED: Final = 100
_SILENT_FAILURE: Final = "Execution failed"
_PACKAGE: Final = re.compile(r"""["'`](npm:[^"'`\s\\]{1,200})["'`]""")
_PACKAGES_ASKED: Final = 20
_POSITION: Final = re.compile(r":(\d+):(\d+)\s*$")


class DenoConnection(KernelConnection):
    """The channels to a Deno kernel, and the pipe that its prelude writes to.

    After a cell that was interrupted or failed without a reason, the kernel is asked once more, out of sight: its
    answer proves that it lives, or holds the reason. The cell's own reply is held until then.
    """

    def __init__(
        self, context: zmq.asyncio.Context, info: dict[str, Any], console: "Console | None" = None
    ) -> None:
        super().__init__(context, info, console)
        self._pipe = OutputPipe()
        self._code = ""
        self._cell_id = ""
        self._interrupted = False
        self._held: Message | None = None
        self._hidden: deque[str] = deque(maxlen=_HIDDEN_REMEMBERED)
        self._signal_timer: asyncio.TimerHandle | None = None

    async def wait_ready(self) -> dict[str, Any]:
        """Return the kernel's description once it answers and has evaluated the prelude.

        Raises:
            RuntimeError: The prelude fails.
        """
        description = await super().wait_ready()
        start = f"(await import({json.dumps(PRELUDE.as_uri())})).default({json.dumps(str(self._pipe.path))})"
        self._ask(start)
        while True:
            await self.wait_reply()
            for reply in super().take_replies():
                if reply.parent_id == self._hidden[-1]:
                    if reply.content.get("status") != "ok":
                        raise RuntimeError(f"the prelude of Deno failed: {reply.content}")  # noqa: EM102
                    return description

    def execute(self, request: Execute) -> str:
        """Send a piece of code and return the id of the message."""
        self._code, self._interrupted, self._held = request.code, False, None
        self._cell_id = super().execute(request)
        return self._cell_id

    def answer(self, text: str | None) -> None:
        """Answer a question of the kernel with a line; None is the end of input, for which `prompt()` has null."""
        self._send(self._stdin, "input_reply", {"value": text})

    def interrupt(self, process: "KernelProcess") -> None:
        """End a running loop, or else, after a second, the kernel."""
        self._interrupted = True
        self._send_control("interrupt_request")
        if self._signal_timer is None:
            loop = asyncio.get_running_loop()
            self._signal_timer = loop.call_later(_HEED_S, process.send_signal, signal.SIGINT)

    async def wait_output(self, timeout_ms: int = _IDLE_POLL_MS) -> bool:
        """Wait until there may be output to take; cancelling loses nothing."""
        poller = zmq.asyncio.Poller()
        poller.register(self._iopub, zmq.POLLIN)
        poller.register(self._pipe.fd, zmq.POLLIN)
        return bool(await poller.poll(timeout_ms))

    def take_output(self) -> Iterator[Message]:
        """Yield the output that has arrived: what a cell has printed before its error and its end."""
        yield from self._printed()
        for message in super().take_output():
            if message.parent_id in self._hidden:
                continue
            if message.kind in ("error", "status"):
                yield from self._printed()
            yield message

    def take_replies(self) -> Iterator[Message]:
        """Yield the replies that have arrived and need no second question."""
        for reply in super().take_replies():
            if reply.parent_id == self._cell_id and self._is_questionable(reply):
                self._held = reply
                self._ask("0" if self._interrupted else _import_of(self._code))
            elif reply.parent_id not in self._hidden:
                yield reply
            elif self._held and reply.parent_id == self._hidden[-1]:
                yield self._answered(self._held, reply)

    def close(self) -> None:
        """Close the channels and the pipe; a second call does nothing."""
        self._cancel_signal()
        super().close()
        self._pipe.close()

    def _printed(self) -> Iterator[Message]:
        for kind, content in self._pipe.take():
            yield Message(kind, self._cell_id, content)

    def _ask(self, code: str) -> None:
        self._hidden.append(super().execute(Execute(op=0, code=code)))

    def _is_questionable(self, reply: Message) -> bool:
        # An interrupt that comes too late would end the next cell; the question takes it on.
        return self._interrupted or reply.content.get("evalue") == _SILENT_FAILURE

    def _answered(self, held: Message, answer: Message) -> Message:
        self._held = None
        if self._interrupted:
            self._cancel_signal()
            return held
        return Message(held.kind, held.parent_id, _explained(self._code, held.content, answer.content))

    def _cancel_signal(self) -> None:
        if self._signal_timer:
            self._signal_timer.cancel()
        self._signal_timer = None


def _import_of(code: str) -> str:
    """Return code that imports this code as a module, with its packages, but throws 0 before any of it runs."""
    packages = "".join(f"import {json.dumps(name)};" for name in _PACKAGE.findall(code)[:_PACKAGES_ASKED])
    text = json.dumps(f"{packages}throw 0;\n{code}")
    return f'await import("data:application/typescript," + encodeURIComponent({text}))'


def _explained(code: str, failure: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return the failure with the reason that importing the code gave."""
    name, value = str(answer.get("ename", "")), str(answer.get("evalue", ""))
    position = _POSITION.search(value)
    if value.startswith("SyntaxError: ") and position:
        what = value.removeprefix("SyntaxError: ").partition("\n")[0]
        line, column = int(position[1]) - 1, int(position[2])
        lines = [*code.splitlines()[line - 1 : line], " " * (column - 1) + "^"]
        value = f"{what} (line {line}, column {column})"
        traceback = [f"SyntaxError: {value}", *lines]
        return failure | {"ename": "SyntaxError", "evalue": value, "traceback": traceback}
    if answer.get("status") != "error" or value in ("0", _SILENT_FAILURE):
        return failure
    return failure | {"ename": name, "evalue": value.partition("\n    at data:")[0]}
