"""Containers that wait for their one launch line, and those that cannot be parked and start directly."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from aeolus_sandbox.engine.base import ContainerSpec, Engine, EngineContainer
from aeolus_sandbox.errors import LaunchFailed, SessionClosed, ShellMissing
from aeolus_sandbox.hardening import WORKSPACE
from aeolus_sandbox.sandboxes.launch_line import (
    FILES_END,
    NO_TERMINAL_CONTROL,
    READY,
    STARTED,
    check_size,
    launch_line,
)
from aeolus_sandbox.sandboxes.process import ContainerProcess
from aeolus_sandbox.streaming.sandbox import DEFAULT_COLS, DEFAULT_ROWS
from aeolus_sandbox.streaming.source_file import SourceFile

READY_TIMEOUT_S: Final = 60.0
"""How long a container may take from its start to its ready byte."""
_NOT_FOUND_CODE: Final = 127


class TerminalNotParkable(ShellMissing):
    """The image has no `stty`, so that a container of it with a terminal cannot be parked."""

    code = "terminal_not_parkable"


class ParkedContainer:
    """A container that has started and waits; used once. See `streaming.sandbox.Sandbox`."""

    def __init__(self, container: EngineContainer, *, tty: bool) -> None:
        self._container = container
        self._tty = tty
        self._used = False

    async def wait_ready(self) -> None:
        """Wait until the container has printed its ready byte.

        Raises:
            ShellMissing: It has no `sh` to park in, or no `stty` for its terminal.
            LaunchFailed: It ended, said something else, or took too long.
        """
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                said = b"".join(piece.data for piece in await self._container.stream.read())
                if said == READY:
                    return
                if said == NO_TERMINAL_CONTROL:
                    msg = "the image has no `stty`"
                    raise TerminalNotParkable(msg)
                ended = None if said and not _is_inits_complaint(said) else await self._container.wait_exit()
        except TimeoutError as error:
            msg = f"the container was not ready within {READY_TIMEOUT_S:g} s"
            raise LaunchFailed(msg) from error
        if ended is not None and ended.code == _NOT_FOUND_CODE:
            msg = "the image has no `sh`"
            raise ShellMissing(msg)
        msg = f"the container did not park but said {said[:200]!r} ({ended or 'and still runs'})"
        raise LaunchFailed(msg)

    async def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        files: Sequence[SourceFile] = (),
        cols: int = DEFAULT_COLS,
        rows: int = DEFAULT_ROWS,
    ) -> ContainerProcess:
        """Start a program; see `Sandbox.exec`."""
        line = launch_line(
            argv,
            env=env or {},
            cwd=cwd or WORKSPACE,
            files=[(file.path, file.size_bytes) for file in files],
            size=(cols, rows) if self._tty else None,
        )
        if self._used:
            msg = "a parked container is used once, and this one has been"
            raise LaunchFailed(msg)
        self._used = True
        try:
            await self._container.stream.write(line)
            for file in files:
                async for piece in file.pieces():
                    await self._container.stream.write(piece)
            if files and self._tty:
                await self._container.stream.write(FILES_END)
        except SessionClosed as error:
            msg = "the parked container has ended before it was used"
            raise LaunchFailed(msg) from error
        return ContainerProcess(self._container, tty=self._tty, announced_by=STARTED if self._tty else b"")


class DirectContainer:
    """Stands for a container that is made only when its program is known, because its image cannot be parked."""

    def __init__(
        self,
        engine: Engine,
        spec: ContainerSpec,
        *,
        reason: ShellMissing,
        opened: Callable[[EngineContainer], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._spec = spec
        self._reason = reason
        self._opened = opened

    async def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        files: Sequence[SourceFile] = (),
        cols: int = DEFAULT_COLS,
        rows: int = DEFAULT_ROWS,
    ) -> ContainerProcess:
        """Start a program; see `Sandbox.exec`."""
        launch_line(argv, env=env or {}, cwd=cwd or WORKSPACE)  # the same inputs are refused as elsewhere
        check_size(cols, rows)
        if argv[0] == "sh" or files:
            raise self._reason
        spec = self._spec.model_copy(
            update={
                "argv": tuple(argv),
                "env": {**self._spec.env, **(env or {})},
                "working_dir": cwd or WORKSPACE,
            }
        )
        container = await self._engine.launch(spec)
        await self._opened(container)
        if spec.tty:
            await container.resize(cols=cols, rows=rows)
        return ContainerProcess(container, tty=spec.tty)


def _is_inits_complaint(said: bytes) -> bool:
    """Return whether the init, and not a shell, has spoken: it says so when the program does not exist."""
    return said.startswith(b"[FATAL tini")
