"""`aeolus shell`: an interactive terminal in a sandbox, or a command with its stdin and stdout piped.

On a terminal the bytes pass in both directions as they are, because the terminal *is* the sandbox's for that long:
nothing of the sandbox's output is filtered, as with ssh(1). Use `run` for what you only want to look at.
"""

import asyncio
import os
import signal
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from aeolus_sandbox.cli.exits import Exit, code_for_program, say
from aeolus_sandbox.cli.options import (
    ContainerIsolation,
    Files,
    Isolation,
    Memory,
    Timeout,
    limits_for,
    parse_files,
)
from aeolus_sandbox.cli.raw_terminal import RawTerminal, is_at_terminal, terminal_size
from aeolus_sandbox.cli.running import run_orderly
from aeolus_sandbox.cli.sink import stop_writing
from aeolus_sandbox.errors import EngineError, SessionClosed
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.manager import SessionManager
from aeolus_sandbox.streaming.policies import Window
from aeolus_sandbox.streaming.session import StreamingToolSession
from aeolus_sandbox.streaming.stdin import Bytes, EndOfInput, Resize
from aeolus_sandbox.streaming.tool import IsolationMode
from aeolus_sandbox.tools.terminal import TerminalChunk, TerminalInput, TerminalResult, TerminalTool
from aeolus_sandbox.tools.terminal.command_check import CommandPolicy

INTERACTIVE_TIMEOUT_S: Final = 8 * 3600.0
"""How long a terminal stays open, unless `--timeout` says otherwise."""
_ALL_CHUNKS: Final = Window(max_chunks=2**31)
_READ_BYTES: Final = 64 * 1024
_BEST_SHELL: Final = "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi"

Session = StreamingToolSession[TerminalChunk, TerminalResult]


@dataclass(frozen=True, slots=True)
class Program:
    """What is to be run in the terminal."""

    command: str | tuple[str, ...]
    image: str
    files: dict[str, Path]
    policy: CommandPolicy
    isolation: IsolationMode
    at_terminal: bool

    async def open(self, manager: SessionManager, size: tuple[int, int]) -> Session:
        """Open a session that runs it."""
        tool = TerminalTool(image=self.image, command_policy=self.policy, isolation=self.isolation)
        cols, rows = size
        tool_input = TerminalInput(
            command=self.command, tty=self.at_terminal, cols=cols, rows=rows, files=dict(self.files)
        )
        return await manager.open(tool, tool_input, policy=_ALL_CHUNKS)


def shell(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND]",
            help="A command line for sh, or (after --) a program and its arguments; default: bash, else sh.",
            show_default=False,
        ),
    ] = None,
    image: Annotated[str, typer.Option("--image", help="One of our images, or any on the engine.")] = "shell",
    timeout: Timeout = None,
    memory: Memory = None,
    file: Files = None,
    command_policy: Annotated[
        CommandPolicy,
        typer.Option(
            "--command-policy", help="What happens to a COMMAND that looks dangerous (advice, not a barrier)."
        ),
    ] = CommandPolicy.DENY,
    allow_dangerous: Annotated[
        bool, typer.Option("--allow-dangerous", help="The same as --command-policy allow.")
    ] = False,
    isolation: Isolation = ContainerIsolation.CONTAINER,
) -> None:
    """Open a terminal in a sandbox; its window size, all keys and its exit code are the program's.

    Where stdin or stdout is not a terminal, the command gets pipes instead. Bytes pass as they are both ways: on a
    terminal, that is the sandbox's for as long. It ends after 8 hours, unless --timeout says otherwise.
    """
    program = Program(
        command=_command(command or []),
        image=image,
        files=parse_files(file or []),
        policy=CommandPolicy.ALLOW if allow_dangerous else command_policy,
        isolation=isolation.mode,
        at_terminal=is_at_terminal(),
    )
    limits = limits_for(memory_bytes=memory, timeout_s=timeout or INTERACTIVE_TIMEOUT_S)
    with ExitStack() as cleanup:
        terminal = RawTerminal() if program.at_terminal else None
        if terminal is not None:
            cleanup.callback(terminal.restore)
        restore = terminal.restore if terminal is not None else None
        code = run_orderly(_shell(program, limits, terminal), before_forced_end=restore)
    raise typer.Exit(code)


async def _shell(program: Program, limits: Limits, terminal: RawTerminal | None) -> int:
    async with SessionManager(limits=limits) as manager:
        size = terminal_size()
        async with await program.open(manager, size) as session, asyncio.TaskGroup() as group:
            with ExitStack() as cleanup:
                if terminal is not None:
                    cleanup.enter_context(terminal)
                    sizes = group.create_task(_follow_size(session, size))
                    cleanup.callback(sizes.cancel)
                _forward_stdin(session)
                try:
                    await _show_output(session)
                except BrokenPipeError:
                    stop_writing()
                    return Exit.BROKEN_PIPE
                result = await session.finalize()
                if terminal is not None and result.status.reason != "exited":
                    terminal.reset_screen()
        if result.status.reason not in {"exited", "killed"}:
            say(f"ended: {result.status}")
        return code_for_program(result.status)


async def _show_output(session: Session) -> None:
    async for chunk in session:
        stream = sys.stderr if chunk.stream == "stderr" else sys.stdout
        await asyncio.to_thread(_write_all, stream.fileno(), chunk.data)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


async def _follow_size(session: Session, size: tuple[int, int]) -> None:
    """Tell the sandbox each new size of the window."""
    changed = asyncio.Event()
    changed.set()  # it may have changed while the container started
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, changed.set)
    while True:
        await changed.wait()
        changed.clear()
        if (now := terminal_size()) != size:
            size = now
            with suppress(SessionClosed, EngineError):  # the end of the session is told elsewhere
                await session.send_stdin(Resize(*size))


def _forward_stdin(session: Session) -> None:
    """Forward stdin in a thread of its own.

    A read of a terminal, pipe or file can block for ever and cannot be cancelled; the thread is a daemon, which does
    not keep the process from ending. (Making the descriptor non-blocking would also make it so for whoever shares it.)
    """
    loop = asyncio.get_running_loop()

    def send(event: Bytes | EndOfInput) -> None:
        work = session.send_stdin(event)
        try:
            sending = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise SessionClosed("the command has ended") from None  # noqa: EM101
        sending.result()

    def forward() -> None:
        try:
            while data := _read_stdin():
                send(Bytes(data))
            send(EndOfInput())
        except (SessionClosed, CancelledError):
            pass  # it has ended, or takes no more input

    threading.Thread(target=forward, name="forward stdin", daemon=True).start()


def _read_stdin() -> bytes:
    try:
        return os.read(sys.stdin.fileno(), _READ_BYTES)
    except OSError:  # the terminal is gone
        return b""


def _command(words: list[str]) -> str | tuple[str, ...]:
    match words:
        case []:
            return _BEST_SHELL
        case [line]:
            return line
        case _:
            return tuple(words)
