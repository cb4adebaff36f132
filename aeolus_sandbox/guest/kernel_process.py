"""The kernel's process: how it is started, signalled, and how its end is noticed.

The process is the only truth about a kernel's life: a kernel that is killed says nothing on any channel, and
heartbeats call a slow kernel dead.
"""

import asyncio
import ctypes
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from aeolus_sandbox.guest.console import Console
from aeolus_sandbox.guest.kernel_runtime import KernelRuntime
from aeolus_sandbox.guest.languages import KernelCommand
from aeolus_sandbox.guest.memory_events import memory_kills

STDERR_TAIL_BYTES: Final = 4096
_STDERR_HELD_BYTES: Final = 64 * 1024
_PR_SET_CHILD_SUBREAPER: Final = 36
_BURY_ROUNDS: Final = 50
_BURY_PAUSE_S: Final = 0.01


class KernelProcess:
    """One kernel process in a session and process group of its own.

    Raises:
        OSError: The process cannot be started; `BlockingIOError` when there are too many.
    """

    def __init__(self, command: KernelCommand, runtime: KernelRuntime) -> None:
        runtime.prepare(command.transport)
        self.ended = asyncio.Event()
        self.exit_code: int | None = None
        self.signal: int | None = None
        self._loop = asyncio.get_running_loop()
        self._stderr = b""
        self._memory_kills_before = memory_kills()
        self._out_of_memory_words = command.out_of_memory_words
        self.console: Console | None = None
        """What it prints, where that is its output; then whoever reads the messages reads this too."""
        argv = [part.replace("{connection_file}", str(runtime.connection_file)) for part in command.argv]
        environment = runtime.environment(command.environment)
        with ExitStack() as write_ends, ExitStack() as on_failure:
            self._stderr_fd, stderr_end = _open_pipe(write_ends, on_failure)
            stdout_end = subprocess.DEVNULL
            if command.has_console:
                stdout_fd, stdout_end = _open_pipe(write_ends, on_failure)
                environment["AEOLUS_MARK"] = key = secrets.token_hex(8)
                self.console = Console(stdout_fd, self._stderr_fd, key, self._note_stderr)
            self._popen = subprocess.Popen(  # noqa: S603 - argv comes from the table of languages
                argv,
                stdin=subprocess.DEVNULL,
                stdout=stdout_end,
                stderr=stderr_end,
                env=environment,
                start_new_session=True,
            )
            on_failure.pop_all()
        self.pid = self._popen.pid
        if not self.console:
            self._loop.add_reader(self._stderr_fd, self._read_stderr)
        # Boundary: when memory runs out, the kernel is killed and not this process, which must tell of it.
        with suppress(OSError):
            Path(f"/proc/{self.pid}/oom_score_adj").write_text("1000", encoding="ascii")

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether something was killed for memory since the process was started, or it ended itself for that."""
        words = self._out_of_memory_words
        return memory_kills() > self._memory_kills_before or bool(words and words in self._stderr)

    @property
    def stderr_tail(self) -> str:
        """The last words of the process."""
        # CPython ends a fault report with a list of all extension modules, which can push out what matters.
        text = self._stderr.partition(b"\nExtension modules:")[0].strip()
        return text[-STDERR_TAIL_BYTES:].decode("utf-8", "replace")

    def send_signal(self, number: int) -> None:
        """Send a signal to the process group; one that has ended is left alone."""
        if not self.ended.is_set():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def reap(self) -> None:
        """Collect every child that has ended, the kernel and what it left behind; call it on SIGCHLD."""
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if child is None:
                return
            if child.si_pid == self.pid:
                self._note_end(child.si_code, child.si_status)
            with suppress(ChildProcessError):
                os.waitpid(child.si_pid, 0)

    async def bury(self) -> None:
        """Kill what the kernel has left behind, and close what belonged to it; safe to call twice."""
        self.send_signal(signal.SIGKILL)
        for _ in range(_BURY_ROUNDS):
            self.reap()
            orphans = list(_children())
            for pid in orphans:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not orphans and self.ended.is_set():
                break
            await asyncio.sleep(_BURY_PAUSE_S)
        if self.console:
            self.console.end()
        elif self._stderr_fd >= 0:
            self._read_stderr()
            self._close_stderr()

    def _note_end(self, code: int, status: int) -> None:
        # The leader is still a zombie here, so its number cannot belong to anyone else.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if code == os.CLD_EXITED:
            self.exit_code = status
        else:
            self.signal = status
        self._popen.returncode = status if code == os.CLD_EXITED else -status
        self.ended.set()

    def _read_stderr(self) -> None:
        try:
            data = os.read(self._stderr_fd, _STDERR_HELD_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._close_stderr()
        self._note_stderr(data)

    def _note_stderr(self, data: bytes) -> None:
        self._stderr = (self._stderr + data)[-_STDERR_HELD_BYTES:]

    def _close_stderr(self) -> None:
        if self._stderr_fd >= 0:
            self._loop.remove_reader(self._stderr_fd)
            os.close(self._stderr_fd)
            self._stderr_fd = -1


def _open_pipe(write_ends: ExitStack, on_failure: ExitStack) -> tuple[int, int]:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    on_failure.callback(os.close, read_end)
    write_ends.callback(os.close, write_end)
    return read_end, write_end


def adopt_orphans() -> None:
    """Make this process the parent of all processes that a kernel's descendants leave behind.

    A child in a session of its own (IPython runs `!command` in one) is not in the kernel's group.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> Iterator[int]:
    own = os.getpid()
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                # The name, in parentheses, can hold anything; the state and the parent follow it.
                after_name = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                if int(after_name[1]) == own and after_name[0] != b"Z":
                    yield int(entry.name)
