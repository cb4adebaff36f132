"""Files that can be fetched from a tool that has ended, and how long its container is held for that."""

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import ArtifactError
from aeolus_sandbox.limits import MIB

P = ParamSpec("P")
T = TypeVar("T")

FETCHED_BYTES: Final = 64 * MIB
"""How much is fetched into memory at most, unless the caller says otherwise."""
HOLD_S: Final = 30.0
"""How long a container is held after its tool has ended, or after the latest fetch, while its session is not closed."""
FETCH_TIMEOUT_S: Final = 300.0


class WorkspaceFiles(Protocol):
    """What a tool offers of its workspace once it has ended; one reader at a time."""

    @property
    def need_container(self) -> bool:
        """Whether there is something to fetch that goes with the session's own container."""
        ...

    def read(self, path: str, *, max_bytes: int) -> AsyncGenerator[bytes, None]:
        """Yield a file's content in pieces; called after `StreamingToolHandle.finalize`.

        Raises:
            ConfigurationError: The path is not one of a file below the workspace.
            ArtifactError: There is no such file, it is larger than `max_bytes`, or the workspace is gone.
        """
        ...


class HeldFiles:
    """A session's way to the files of its tool."""

    def __init__(
        self,
        offered: Callable[[], WorkspaceFiles | None],
        tasks: BackgroundTasks,
        *,
        hold_s: float = HOLD_S,
    ) -> None:
        """Fetch what `offered` gives, which is asked after the tool's end only."""
        self._offered = offered
        self._tasks = tasks
        self._hold_s = hold_s
        self._turn = asyncio.Lock()
        self._used_at = 0.0
        self._closed = asyncio.Event()
        self._gone = False

    async def read(self, path: str, *, max_bytes: int) -> bytes:
        """Return a file's content; see `StreamingToolSession.read_artifact`."""
        pieces: list[bytes] = []

        async def keep(piece: bytes) -> None:
            pieces.append(piece)

        await self._fetch(path, max_bytes, keep)
        return b"".join(pieces)

    async def save(self, path: str, to: Path, *, max_bytes: int) -> int:
        """Write a file's content to a file of the host; see `StreamingToolSession.save_artifact`."""
        part = to.with_name(f".aeolus-{secrets.token_hex(8)}.part")
        try:
            await self._in_thread(_create, part)
            size_bytes = await self._fetch(
                path, max_bytes, lambda piece: self._in_thread(_append, part, piece)
            )
            await self._in_thread(os.replace, part, to)
        finally:
            await self._in_thread(part.unlink, missing_ok=True)
        return size_bytes

    async def wait_unneeded(self) -> None:
        """Wait until the session's container is not needed for its files any more."""
        self._used_at = asyncio.get_running_loop().time()
        while (left_s := self._left_s()) > 0 and not await self._closes_within(left_s):
            pass  # a fetch has begun meanwhile, or has ended
        self._gone = True

    def close(self) -> None:
        """Hold the container no longer; what is fetched meanwhile breaks off."""
        self._closed.set()

    async def _fetch(self, path: str, max_bytes: int, take: Callable[[bytes], Awaitable[Any]]) -> int:
        size_bytes = 0
        try:
            async with (
                asyncio.timeout(FETCH_TIMEOUT_S),
                self._in_turn() as files,
                aclosing(files.read(path, max_bytes=max_bytes)) as pieces,
            ):
                async for piece in pieces:
                    size_bytes += len(piece)
                    await take(piece)
        except TimeoutError as error:
            msg = f"the file {path!r} could not be fetched within {FETCH_TIMEOUT_S:g} s"
            raise ArtifactError(msg) from error
        return size_bytes

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[WorkspaceFiles]:
        async with self._turn:
            files = self._offered()
            if files is None or (self._gone and files.need_container):
                msg = "the session holds no files any more: fetch them soon after its end, and before it is closed"
                raise ArtifactError(msg)
            try:
                yield files
            finally:
                self._used_at = asyncio.get_running_loop().time()

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work to its end, also where the caller is cancelled: what follows must not overtake it."""
        task = self._tasks.start(asyncio.to_thread(work, *args, **kwargs), name="write a file", awaited=True)
        try:
            await asyncio.wait([task])
        finally:
            await asyncio.wait([task])
        return task.result()

    def _left_s(self) -> float:
        """Return how much longer the container is to be held."""
        files = self._offered()
        if files is None or not files.need_container:
            return 0.0
        if self._turn.locked():
            return self._hold_s
        return self._used_at + self._hold_s - asyncio.get_running_loop().time()

    async def _closes_within(self, time_s: float) -> bool:
        try:
            async with asyncio.timeout(time_s):
                await self._closed.wait()
        except TimeoutError:
            return False
        return True


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))


def _append(path: Path, data: bytes) -> None:
    # Opened for each piece: a descriptor would be left open where the caller is cancelled.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC), "ab") as file:
        file.write(data)
