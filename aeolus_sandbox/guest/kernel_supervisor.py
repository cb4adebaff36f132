"""Keeps a kernel running: starts it, proves it ready, notices its death, buries it, starts the next."""

import asyncio
import errno
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import zmq.asyncio

from aeolus_sandbox.guest.cell_runner import CellRunner
from aeolus_sandbox.guest.frames import PROTOCOL_VERSION, Ready
from aeolus_sandbox.guest.kernel_client import KernelConnection
from aeolus_sandbox.guest.kernel_process import KernelProcess
from aeolus_sandbox.guest.kernel_runtime import KernelRuntime
from aeolus_sandbox.guest.languages import LANGUAGES

BOOT_LIMIT_S: Final = 60.0
"""How long a kernel may take to be ready (gVisor on a busy machine is slow)."""
MAX_FAILED_BOOTS: Final = 3
_WARM_UP_LIMIT_S: Final = 30.0
_SPAWN_LIMIT_S: Final = 10.0
_SPAWN_PAUSE_S: Final = 0.1
_LACKING: Final = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC)
"""Errors of a start that may pass: the code has used up processes, memory, files or disk."""

T = TypeVar("T")


class NoKernelError(RuntimeError):
    """No kernel can be kept running."""


class KernelSupervisor:
    """The kernels that follow one another in one guest.

    With `warm`, the first one does ahead what makes a first cell slow; after a death, somebody waits for the next.
    """

    def __init__(
        self, language: str, cells: CellRunner, context: zmq.asyncio.Context, *, warm: bool = False
    ) -> None:
        self._language = language
        self._cells = cells
        self._context = context
        self._runtime = KernelRuntime()
        self._process: KernelProcess | None = None
        self._kill_asked = False
        self._warm_up = LANGUAGES[language].warm_up if warm else ""

    async def run(self) -> None:
        """Keep a kernel running until cancelled.

        Raises:
            NoKernelError: Kernels end before they are ready, or cannot be started.
        """
        failed_boots = 0
        while True:
            self._kill_asked = False
            process = self._process = await self._spawn()
            connect = LANGUAGES[self._language].connection
            connection = connect(self._context, self._runtime.connection, process.console)
            try:
                ready = await _until_ended(process, self._boot(connection))
                if ready:
                    failed_boots = 0
                    await _until_ended(process, self._cells.serve(process, connection, ready))
                process.send_signal(signal.SIGKILL)  # it may only have been too slow
                await process.bury()
                if ready or self._kill_asked:
                    await self._cells.conclude(process, killed=self._kill_asked)
                else:
                    failed_boots += 1
            finally:
                connection.close()
            if failed_boots == MAX_FAILED_BOOTS:
                reason = process.stderr_tail or "it said nothing"
                raise NoKernelError(f"{failed_boots} kernels in a row ended before they were ready: {reason}")  # noqa: EM102

    def kill_kernel(self) -> None:
        """Kill the kernel; the next one starts by itself."""
        self._kill_asked = True
        if self._process:
            self._process.send_signal(signal.SIGKILL)

    def reap(self) -> None:
        """Collect ended children; called on SIGCHLD."""
        if self._process:
            self._process.reap()

    async def aclose(self) -> None:
        """Kill the kernel and remove what belonged to it."""
        if self._process:
            await self._process.bury()
        self._runtime.remove()

    async def _spawn(self) -> KernelProcess:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SPAWN_LIMIT_S
        while True:
            try:
                return KernelProcess(LANGUAGES[self._language], self._runtime)
            except OSError as error:
                if error.errno not in _LACKING or loop.time() > deadline:
                    raise NoKernelError(f"the kernel cannot be started: {error}") from error  # noqa: EM102
            await asyncio.sleep(_SPAWN_PAUSE_S)

    async def _boot(self, connection: KernelConnection) -> Ready | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(BOOT_LIMIT_S):
                info = await connection.wait_ready()
                await self._warm(connection)
                kernel = f"{info.get('implementation', '')} {info.get('implementation_version', '')}".strip()
                return Ready(protocol=PROTOCOL_VERSION, language=self._language, kernel=kernel)
        return None

    async def _warm(self, connection: KernelConnection) -> None:
        code, self._warm_up = self._warm_up, ""
        if code:
            # A kernel that takes too long is ready all the same: its first cell waits for the rest.
            with suppress(TimeoutError):
                async with asyncio.timeout(_WARM_UP_LIMIT_S):
                    await connection.run_silently(code)


async def _until_ended(process: KernelProcess, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what `work` returns, or None as soon as the process has ended."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        ended = group.create_task(process.ended.wait())
        await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        task.cancel()
    return None if task.cancelled() else task.result()
