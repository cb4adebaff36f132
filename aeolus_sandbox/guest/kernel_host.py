"""The guest program beside a Jupyter kernel: frames with the host, ZMQ with the kernel.

`aeolus-kernel-host LANGUAGE` reads requests from its stdin and writes replies to its stdout (see `frames`). With
`--warm` behind it, the first kernel has done ahead what makes first cells slow when `Ready` comes.
It ends with 0 at the end of input or on `Shutdown`, 2 after a malformed request, 3 when no kernel can be kept
running, and 4 after a fault of its own; the last three are told in a `Fault`.

- Cells run one after the other; one that fails does not stop those behind it.
- Output belongs to the cell that the kernel names as its parent, also when that one has ended, and to operation 0
  when the kernel names none that is known. (ipykernel gives a thread's output to the cell that runs at the time.)
- When the kernel dies, the cell under way is lost (`KernelDied`) and those behind it are `aborted`; only after
  an `exit()`, which ends the kernel on purpose, they run in the next kernel.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import Final, assert_never

from aeolus_sandbox.guest import kernel_client
from aeolus_sandbox.guest.cell_runner import CellRunner
from aeolus_sandbox.guest.frames import (
    Done,
    Execute,
    Fault,
    FrameError,
    InputReply,
    Interrupt,
    KillKernel,
    LineSplitter,
    ListChanges,
    Ping,
    ReadFile,
    Request,
    Shutdown,
    WriteFile,
    decode_request,
)
from aeolus_sandbox.guest.kernel_messages import safe_line
from aeolus_sandbox.guest.kernel_process import adopt_orphans
from aeolus_sandbox.guest.kernel_supervisor import KernelSupervisor, NoKernelError
from aeolus_sandbox.guest.languages import LANGUAGES
from aeolus_sandbox.guest.pipes import ReplyWriter, RequestReader
from aeolus_sandbox.guest.workspace import Workspace

EXIT_OK: Final = 0
EXIT_MALFORMED: Final = 2
EXIT_NO_KERNEL: Final = 3
EXIT_FAULT: Final = 4
_LAST_WORDS_S: Final = 0.3
_CLOSE_LIMIT_S: Final = 0.6


class KernelHost:
    """One guest: it serves requests until the first reason to end, which decides its exit code."""

    def __init__(self, language: str, requests_fd: int, replies_fd: int, *, warm: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._exit_code: asyncio.Future[int] = self._loop.create_future()
        self._splitter = LineSplitter()
        self._requests = RequestReader(requests_fd, self._take_data, self._stop)
        self._replies = ReplyWriter(replies_fd, on_broken=self._stop)
        self._workspace = Workspace(".", self._replies)
        self._context = kernel_client.open_context()
        self._cells = CellRunner(self._replies, self._workspace)
        self._kernels = KernelSupervisor(language, self._cells, self._context, warm=warm)

    async def run(self) -> int:
        """Serve until the end and return the exit code."""
        self._loop.add_signal_handler(signal.SIGCHLD, self._kernels.reap)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._stop)
        self._loop.set_exception_handler(self._note_exception)
        self._requests.start()
        try:
            return await self._supervise()
        finally:
            await self._close()

    async def _supervise(self) -> int:
        async with asyncio.TaskGroup() as group:
            supervisor = group.create_task(self._run_kernels())
            files = group.create_task(self._workspace.run())
            exit_code = await self._exit_code
            supervisor.cancel()
            files.cancel()
        return exit_code

    async def _run_kernels(self) -> None:
        try:
            await self._kernels.run()
        except NoKernelError as error:
            self._fail(EXIT_NO_KERNEL, str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the host must hear of it
            self._fail(EXIT_FAULT, f"{type(error).__name__}: {error!r}")

    def _take_data(self, data: bytes) -> None:
        try:
            for line in self._splitter.feed(data):
                if not self._exit_code.done():
                    self._serve(decode_request(line))
        except FrameError as error:
            self._fail(EXIT_MALFORMED, str(error)[:1000])

    def _serve(self, request: Request) -> None:
        match request:
            case Execute():
                self._cells.execute(request)
            case InputReply():
                self._cells.answer(request)
            case Interrupt():
                if not self._workspace.interrupt(request.op):
                    self._cells.interrupt(request.op)
            case KillKernel():
                self._kernels.kill_kernel()
            case WriteFile() | ListChanges() | ReadFile():
                self._workspace.serve(request)
            case Ping():
                self._replies.post(Done(op=request.op, status="ok"))
            case Shutdown():
                self._stop()
            case _:
                assert_never(request)

    def _stop(self, exit_code: int = EXIT_OK) -> None:
        if not self._exit_code.done():
            self._exit_code.set_result(exit_code)
        self._requests.stop()

    def _fail(self, exit_code: int, message: str) -> None:
        if not self._exit_code.done():
            self._replies.post_lines(safe_line(Fault(message=message)))
        self._stop(exit_code)

    def _note_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        loop.default_exception_handler(context)  # to stderr
        self._fail(EXIT_FAULT, f"{context.get('message')}: {context.get('exception')!r}")

    async def _close(self) -> None:
        # Time limits add up to less than the second in which the guest promises to end.
        self._requests.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_LIMIT_S):
                await self._kernels.aclose()
        if not self._exit_code.done() or self._exit_code.result() != EXIT_OK:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    await self._replies.wait_flushed()
        self._replies.close()
        self._workspace.close()
        self._context.destroy(linger=0)


def _take_pipes() -> tuple[int, int]:
    """Return private descriptors for requests and replies; nothing else reads or writes them from here on."""
    requests_fd, replies_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)  # a stray print must not look like a frame
    return requests_fd, replies_fd


async def _serve_host(language: str, *, warm: bool) -> int:
    return await KernelHost(language, *_take_pipes(), warm=warm).run()


def main() -> int:
    """Run the guest and return its exit code."""
    language, *options = sys.argv[1:] or [""]
    if language not in LANGUAGES or options not in ([], ["--warm"]):
        print(f"usage: aeolus-kernel-host {'|'.join(LANGUAGES)} [--warm]", file=sys.stderr)  # noqa: T201
        return 64
    adopt_orphans()
    return asyncio.run(_serve_host(language, warm=bool(options)))


if __name__ == "__main__":
    sys.exit(main())
