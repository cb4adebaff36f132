"""A program in a container of ours: its output, its input, and how it ended."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from aeolus_sandbox.engine.base import ContainerExit, EngineContainer
from aeolus_sandbox.errors import EngineError, SessionBroken
from aeolus_sandbox.exit_status import ExitStatus, Stop
from aeolus_sandbox.limits import LimitName
from aeolus_sandbox.pieces import Piece
from aeolus_sandbox.streaming.stdin import UnixSignal

_INTERRUPT: Final = b"\x03"
_QUIT: Final = b"\x1c"
_SIGKILL_CODE: Final = 128 + 9
_SIGTERM_CODE: Final = 128 + 15
_EXIT_AFTER_OUTPUT_S: Final = 10.0
"""How soon a container must have ended after its output has. Its first process, the init, keeps the output open until
it ends itself; so output that ends earlier was cut off."""
_KILL_TIMEOUT_S: Final = 5.0
_START_TIMEOUT_S: Final = 10.0
"""How long input waits for the program's announcement, before it is sent anyway."""


class ContainerProcess:
    """The program of one container; see `streaming.sandbox.Process` for the promises."""

    def __init__(
        self,
        container: EngineContainer,
        *,
        tty: bool,
        announced_by: bytes = b"",
        said: Sequence[Piece] = (),
    ) -> None:
        """Take over a started container.

        Args:
            container: The container.
            tty: Whether it has a terminal.
            announced_by: What precedes the program's output; until it has come, nothing is sent to the program.
            said: What it has said before, which is read first.
        """
        self._container = container
        self.tty = tty
        self._announced_by = announced_by
        self._said = said
        self._started = asyncio.Event()
        if not announced_by:
            self._started.set()
        self._stop: Stop | None = None
        self._lost: SessionBroken | None = None

    async def read(self) -> Sequence[Piece]:
        """Return what was written since the last call; see `Process.read`."""
        if self._said:
            said, self._said = self._said, ()
            return said
        try:
            pieces = await self._container.stream.read()
            if self._started.is_set():
                return pieces
            self._started.set()
            return self._without_announcement(pieces) or await self._container.stream.read()
        except EngineError as error:
            if self._stop is not None:  # the stream was closed under a container that hung
                return ()
            raise self._broken(error) from error

    async def write(self, data: bytes) -> None:
        """Write to stdin; see `Process.write`."""
        await self._wait_started()
        await self._container.stream.write(data)

    def write_eof(self) -> None:
        """End stdin; see `Process.write_eof`."""
        if not self.tty:
            self._container.stream.write_eof()

    async def signal(self, signal: UnixSignal) -> None:
        """Signal the program in front; see `Process.signal`."""
        await self._wait_started()
        if not self.tty:
            await self._container.signal(signal.value)
        elif signal is UnixSignal.SIGINT:  # the terminal turns these two into signals for what is in front
            await self.write(_INTERRUPT)
        elif signal is UnixSignal.SIGQUIT:
            await self.write(_QUIT)
        else:
            await self._container.signal_foreground(signal.value)

    async def resize(self, *, cols: int, rows: int) -> None:
        """Set the terminal's size; see `Process.resize`."""
        if self.tty:
            await self._wait_started()
            await self._container.resize(cols=cols, rows=rows)

    async def stop(self, stop: Stop) -> None:
        """Kill the whole container; see `Process.stop`."""
        self._stop = self._stop or stop
        try:
            async with asyncio.timeout(_KILL_TIMEOUT_S):
                await self._container.kill()
        except (EngineError, TimeoutError):
            # While an attached client does not read, Docker holds the container's lock (moby #41827): let it go.
            await self._container.stream.aclose()
            await self._kill_again()

    async def wait(self) -> ExitStatus:
        """Wait for the end; see `Process.wait`."""
        try:
            async with asyncio.timeout(_EXIT_AFTER_OUTPUT_S):
                ended = await self._container.wait_exit()
        except (EngineError, TimeoutError) as error:
            raise self._broken(error) from error
        return self._status(ended)

    async def _wait_started(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._started.wait()

    def _without_announcement(self, pieces: Sequence[Piece]) -> Sequence[Piece]:
        first = pieces[0] if pieces else Piece("stdout", b"")
        if not first.data.startswith(self._announced_by):  # something went wrong before, and this says what
            return pieces
        rest = first.data[len(self._announced_by) :]
        return [Piece(first.stream, rest), *pieces[1:]] if rest else pieces[1:]

    async def _kill_again(self) -> None:
        try:
            await self._container.kill()
        except EngineError as error:
            self._broken(error)

    def _broken(self, error: Exception) -> SessionBroken:
        if self._lost is None:
            reason = str(error) or "its output ended although it still ran"
            self._lost = SessionBroken(
                f"the connection to the container was lost, its end is not known: {reason}"
            )
        return self._lost

    def _status(self, ended: ContainerExit) -> ExitStatus:
        memory = LimitName.MEMORY if ended.out_of_memory else None
        if self._stop is not None:
            return ExitStatus(reason=self._stop.reason, code=ended.code, limit_hit=self._stop.limit_hit)
        if ended.code == _SIGKILL_CODE and ended.out_of_memory:
            return ExitStatus(reason="out_of_memory", code=ended.code, limit_hit=memory)
        killed = ended.code in {_SIGKILL_CODE, _SIGTERM_CODE}
        return ExitStatus(reason="killed" if killed else "exited", code=ended.code, limit_hit=memory)
