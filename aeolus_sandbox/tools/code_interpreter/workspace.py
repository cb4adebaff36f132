"""A kernel's workspace: files go in, what the code changed is listed, and files come out."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from aeolus_sandbox.errors import (
    ArtifactError,
    ConfigurationError,
    SessionBroken,
    SessionError,
)
from aeolus_sandbox.guest import frames
from aeolus_sandbox.streaming.source_file import SourceFile
from aeolus_sandbox.streaming.tool import Kept
from aeolus_sandbox.tools.code_interpreter import replies
from aeolus_sandbox.tools.code_interpreter.artifacts import Artifact, media_type
from aeolus_sandbox.tools.code_interpreter.kernel import Kernel
from aeolus_sandbox.tools.files import workspace_path

LISTING_TIMEOUT_S: Final = 10.0
"""How long the list of changed files may take; the result is given without it then."""
STOPPED_LISTING_TIMEOUT_S: Final = 1.5
"""The same when the code was told to end: the session's end is near then."""
_INTERRUPT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Listing:
    """Which files the code has changed."""

    artifacts: tuple[Artifact, ...] = ()
    left_out: int = 0
    complete: bool = False


async def write_files(kernel: Kernel, files: Sequence[SourceFile]) -> None:
    """Write files below a kernel's working directory.

    Raises:
        ConfigurationError: One could not be written, or was changed while it was sent.
        SessionBroken: The container was lost.
    """
    for file in files:
        path, op, sent_bytes = _checked(file.path), kernel.new_op(), 0
        async for data in file.pieces(frames.FILE_PIECE_BYTES):
            first, sent_bytes = sent_bytes == 0, sent_bytes + len(data)
            last = sent_bytes == file.size_bytes
            await kernel.send(frames.WriteFile(op=op, path=path, data=data, first=first, last=last))
        done = await kernel.reply_to(op)
        if not isinstance(done, replies.Done) or done.status != "ok":
            reason = done.message[:500] if isinstance(done, replies.Done) else "no answer"
            msg = f"the file {file.path!r} could not be written into the workspace: {reason}"
            raise ConfigurationError(msg)


async def list_changes(kernel: Kernel, *, timeout_s: float, promised: int | None = None) -> Listing:
    """Return what was changed since the last call; an incomplete, empty list where the kernel cannot say.

    Args:
        kernel: The kernel.
        timeout_s: How long it may take.
        promised: The operation that the list belongs to, where the guest has said that it sends one unasked.

    Raises:
        GuestProtocolError: The guest sent what no guest of ours sends.
    """
    if not kernel.is_usable:
        return Listing()
    try:
        async with asyncio.timeout(timeout_s):
            reply = await kernel.reply_to(await _asked(kernel) if promised is None else promised)
    except (TimeoutError, SessionBroken):
        return Listing()
    if not isinstance(reply, replies.Changes):
        return Listing()
    try:
        artifacts = tuple(map(_artifact, replies.changes_of(reply.files)))
    except frames.FrameError as error:
        raise kernel.protocol_broken(error) from error
    return Listing(artifacts, reply.left_out, reply.complete)


async def read_file(kernel: Kernel, path: str, *, max_bytes: int) -> AsyncGenerator[bytes, None]:
    """Yield the content of a file below a kernel's working directory.

    Raises:
        ConfigurationError: The path is not one of a file below the workspace.
        ArtifactError: There is no such file, or it is larger than `max_bytes`.
        SessionBroken: The container was lost.
        GuestProtocolError: The guest sent what no guest of ours sends.
    """
    path, op, left_bytes, ended = _checked(path), kernel.new_op(), max_bytes, False
    try:
        await kernel.send(frames.ReadFile(op=op, path=path, max_bytes=max_bytes))
        while not ended:
            reply = await kernel.reply_to(op)
            match reply:
                case replies.FilePiece(data=data):
                    left_bytes -= len(data)
                    # Boundary: the guest keeps the limit; one that does not has been taken over.
                    if left_bytes < 0:
                        raise kernel.protocol_broken(frames.FrameError("more of a file than was asked for"))
                    yield data
                case replies.Done(status="ok"):
                    ended = True
                case _:
                    ended = True
                    raise _not_fetched(path, getattr(reply, "message", ""))
    finally:
        if not ended and kernel.is_usable:  # what is still on its way is passed over by whoever reads next
            with suppress(SessionError, TimeoutError):
                async with asyncio.timeout(_INTERRUPT_S):
                    await kernel.interrupt(op)


class KernelFiles:
    """The files of one call, once its code has ended; see `streaming.held_files.WorkspaceFiles`."""

    def __init__(
        self, kernel: Kernel, lend: Callable[[], AbstractAsyncContextManager[Kept]] | None = None
    ) -> None:
        """Offer a kernel's files; `lend` gives it where it is kept, and may be another session's by then."""
        self._kernel = kernel
        self._lend = lend
        self._has_artifacts = False

    @property
    def need_container(self) -> bool:
        """Whether the session's own container must be held; see `WorkspaceFiles.need_container`."""
        return self._lend is None and self._has_artifacts and self._kernel.is_usable

    def note(self, listing: Listing) -> None:
        """Note what there is to fetch."""
        there = any(artifact.change != "deleted" for artifact in listing.artifacts)
        self._has_artifacts = there or listing.left_out > 0

    async def read(self, path: str, *, max_bytes: int) -> AsyncGenerator[bytes, None]:
        """Yield a file's content; see `WorkspaceFiles.read`."""
        path = workspace_path(path)
        async with (
            self._borrowed() as kernel,
            aclosing(read_file(kernel, path, max_bytes=max_bytes)) as pieces,
        ):
            async for data in pieces:
                yield data

    @asynccontextmanager
    async def _borrowed(self) -> AsyncIterator[Kernel]:
        if self._lend is None:
            yield self._kernel
            return
        async with self._lend() as kept:
            if kept is not self._kernel:
                msg = "the workspace is gone with its kernel, and another one has taken its place"
                raise ArtifactError(msg)
            yield self._kernel


async def _asked(kernel: Kernel) -> int:
    op = kernel.new_op()
    await kernel.send(frames.ListChanges(op=op))
    return op


def _checked(path: str) -> str:
    path = workspace_path(path)
    try:
        path.encode()
    except UnicodeEncodeError as error:
        msg = f"the path {path!r} holds what is not Unicode, and cannot be sent to a kernel"
        raise ConfigurationError(msg) from error
    return path


def _artifact(change: replies.FileChange) -> Artifact:
    try:
        normal = workspace_path(change.path)
    except ConfigurationError as error:
        raise frames.FrameError(f"a path that leads out of the workspace: {error}") from error  # noqa: EM102
    # Boundary: whoever stores files by these names must not be led out of a folder; the guest does not decide that.
    if normal != change.path:
        raise frames.FrameError("a path that is not in its normal form")  # noqa: EM101
    return Artifact(
        path=change.path,
        change=change.change,
        size_bytes=change.size_bytes,
        mime_type=media_type(change.path, change.head),
    )


def _not_fetched(path: str, reason: str) -> ArtifactError:
    return ArtifactError(f"the file {path!r} cannot be fetched: {reason[:500] or 'no reason was given'}")
