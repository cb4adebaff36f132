"""What a tool sees of its container; implemented by `sandboxes`, and by fakes."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from aeolus_sandbox.exit_status import ExitStatus, Stop
from aeolus_sandbox.pieces import Piece
from aeolus_sandbox.streaming.source_file import SourceFile
from aeolus_sandbox.streaming.stdin import UnixSignal

DEFAULT_COLS = 80
DEFAULT_ROWS = 24


class Process(Protocol):
    """A program that runs in a container; one reader and one writer at a time."""

    @property
    def tty(self) -> bool:
        """Whether it has a terminal."""
        ...

    async def read(self) -> Sequence[Piece]:
        """Return what it has written since the last call, waiting for something; empty at the end of output.

        Cancelling the call loses nothing.

        Raises:
            SessionBroken: The engine or the container went away.
        """
        ...

    async def write(self, data: bytes) -> None:
        """Write to its stdin.

        Raises:
            SessionClosed: It takes no more input.
        """
        ...

    def write_eof(self) -> None:
        """End its stdin; without effect on a terminal, where the end of input is a character."""
        ...

    async def signal(self, signal: UnixSignal) -> None:
        """Signal the program, or what is in front on its terminal; without effect when it has ended."""
        ...

    async def resize(self, *, cols: int, rows: int) -> None:
        """Set the size of its terminal; without effect when it has none or has ended."""
        ...

    async def stop(self, stop: Stop) -> None:
        """End it and everything that it started, at once; the first reason given counts."""
        ...

    async def wait(self) -> ExitStatus:
        """Wait for its end and return how it ended; call it after the end of output.

        Raises:
            SessionBroken: The engine or the container went away.
        """
        ...


class ImagePreparation(Protocol):
    """An image that is found or built: an iterator over news of the build, which ends when the image is there.

    Nothing happens before the first step.
    """

    def __aiter__(self) -> AsyncIterator[str]:
        """Return itself."""
        ...

    async def reference(self) -> str:
        """Wait for the image and return its reference.

        Raises:
            ImageBuildFailed: The packages cannot be installed, with what the installer says.
            EngineError: The engine does not answer, or not in time.
        """
        ...

    def cancel(self) -> None:
        """Stop the build, which clears away what it has made; without effect when it is done."""
        ...


class Sandbox(Protocol):
    """A parked container: takes one program, once."""

    async def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        files: Sequence[SourceFile] = (),
        cols: int = DEFAULT_COLS,
        rows: int = DEFAULT_ROWS,
    ) -> Process:
        """Start a program in place of the parked one.

        Args:
            argv: The program and its arguments.
            env: Variables to add to the image's.
            cwd: The working directory; None: the workspace.
            files: What to write below the workspace before.
            cols: Columns of the terminal, where there is one.
            rows: Rows of the terminal.

        Raises:
            ConfigurationError: An argument cannot be passed to a program, such as one with a zero byte; or a file
                was changed while it was sent.
            ShellMissing: The image has no `sh`, which the program or the files need.
            LaunchFailed: The container is not there any more.
        """
        ...
