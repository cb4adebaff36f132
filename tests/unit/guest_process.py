"""The kernel host as a local process with a real ipykernel, as its host sees it."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from aeolus_sandbox.guest.frames import (
    Done,
    Error,
    Execute,
    Frame,
    KernelDied,
    LineSplitter,
    Ready,
    Reply,
    Stream,
    decode_reply,
    encode_frame,
)

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 30.0


class Guest:
    """A running guest, as the host sees it."""

    def __init__(self, workspace: Path, *options: str) -> None:
        environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
        environment |= {"PYTHONPATH": str(REPOSITORY), "TMPDIR": "/tmp", "HOME": str(workspace)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "aeolus_sandbox.guest.kernel_host", "python", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=workspace,
            env=environment,
        )
        self._splitter = LineSplitter()
        self._frames: list[Reply] = []
        self._op = 0
        assert self.process.stdin
        assert self.process.stdout
        self._stdin, self._stdout = self.process.stdin, self.process.stdout

    def send(self, *frames: Frame) -> None:
        self.send_bytes(b"".join(map(encode_frame, frames)))

    def send_bytes(self, data: bytes) -> None:
        self._stdin.write(data)
        self._stdin.flush()

    def next(self) -> Reply | None:
        """Return the next reply, or None at the end of output."""
        deadline = time.monotonic() + LIMIT_S
        while not self._frames:
            ready, _, _ = select.select([self._stdout], [], [], deadline - time.monotonic())
            assert ready, "the guest says nothing"
            data = os.read(self._stdout.fileno(), 1 << 20)
            if not data:
                return None
            self._frames += map(decode_reply, self._splitter.feed(data))
        return self._frames.pop(0)

    @property
    def holds_more(self) -> bool:
        """Whether more came in one piece with the reply that was taken last."""
        return bool(self._frames) or self._splitter.held_bytes > 0

    def until(self, wanted: Callable[[Reply], bool]) -> list[Reply]:
        """Return all replies up to the first that is wanted."""
        got: list[Reply] = []
        while not (got and wanted(got[-1])):
            reply = self.next()
            assert reply is not None, f"the guest ended after {got[-3:]}"
            got.append(reply)
        return got

    def ready(self) -> Ready:
        last = self.until(lambda reply: isinstance(reply, Ready))[-1]
        assert isinstance(last, Ready)
        return last

    def start(self, code: str) -> int:
        self._op += 1
        self.send(Execute(op=self._op, code=code))
        return self._op

    def finish(self, op: int) -> list[Reply]:
        return self.until(lambda reply: isinstance(reply, Done | KernelDied) and reply.op == op)

    def run(self, code: str) -> list[Reply]:
        return self.finish(self.start(code))

    def says(self, text: str) -> None:
        """Wait until the code has printed a text."""
        self.until(lambda reply: isinstance(reply, Stream) and text in reply.text)

    def end(self) -> int:
        self._stdin.close()
        return self.process.wait(timeout=5)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._stdout.close()
        with suppress(BrokenPipeError):
            self._stdin.close()


def printed(replies: list[Reply], name: str = "stdout", op: int | None = None) -> str:
    chosen = [reply for reply in replies if isinstance(reply, Stream) and reply.name == name]
    return "".join(reply.text for reply in chosen if op in (None, reply.op))


def status(replies: list[Reply]) -> str:
    assert isinstance(replies[-1], Done), replies[-1]
    return replies[-1].status


def death(replies: list[Reply]) -> KernelDied:
    assert isinstance(replies[-1], KernelDied), replies[-1]
    return replies[-1]


def errors(replies: list[Reply]) -> list[str]:
    return [reply.name for reply in replies if isinstance(reply, Error)]


def gone(pid: int) -> bool:
    """Whether the process ends within a second."""
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
    return False
