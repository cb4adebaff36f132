"""One container that waits in a pool: watched, asked whether it answers, and handed out once."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.engine.base import EngineContainer
from aeolus_sandbox.errors import AeolusError, LaunchFailed
from aeolus_sandbox.pieces import Piece
from aeolus_sandbox.sandboxes.parked import READY_TIMEOUT_S

_MAX_FIRST_BYTES: Final = 64 * 1024
"""How much a program may say before its first line has ended."""


class PooledContainer:
    """A container that has started and has no user yet.

    It is watched from the start: nothing may come from it unasked, and the end of its output is its own.
    """

    __slots__ = (
        "_answer",
        "_ask",
        "_asking",
        "_heard",
        "_reply",
        "_watch",
        "container",
        "is_broken",
        "is_taken",
        "made_at",
        "said",
    )

    def __init__(
        self, container: EngineContainer, *, ask: bytes, answer: bytes, said: Sequence[Piece] = ()
    ) -> None:
        """Take over a container that waits.

        Args:
            container: The container.
            ask: What it is asked, newline included.
            answer: What it answers.
            said: What it has said first, which its user reads.
        """
        self.container = container
        self.said = tuple(said)
        self.made_at = asyncio.get_running_loop().time()
        self.is_broken = False
        """Whether it has ended, spoken unasked, or not answered."""
        self.is_taken = False
        self._ask = ask
        self._answer = answer
        self._asking = asyncio.Lock()
        self._reply: asyncio.Future[bool] | None = None
        self._heard = b""
        self._watch: asyncio.Task[None] | None = None

    def watch(self, tasks: BackgroundTasks, *, on_broken: Callable[["PooledContainer"], None]) -> None:
        """Watch it until somebody takes it, and tell when it breaks."""
        self._watch = tasks.start(self._listen(on_broken), name="watch a parked container", awaited=True)

    async def answers(self, *, timeout_s: float) -> bool:
        """Ask whether it is there; one that is not, or not in time, is broken for good.

        One that was taken meanwhile is not asked any more.
        """
        async with self._asking:
            if self.is_broken or self.is_taken:
                return not self.is_broken
            self._reply = asyncio.get_running_loop().create_future()
            self._heard = b""
            try:
                async with asyncio.timeout(timeout_s):
                    await self.container.stream.write(self._ask)
                    return await self._reply
            except (AeolusError, TimeoutError):
                self.is_broken = True
                return False
            finally:
                self._reply = None

    async def take(self) -> bool:
        """Stop watching it, so that its user can read; return whether it is good until now."""
        self.is_taken = True
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        return not self.is_broken

    async def _listen(self, on_broken: Callable[["PooledContainer"], None]) -> None:
        with suppress(AeolusError):
            while pieces := await self.container.stream.read():
                if not self._is_asked_for(pieces):
                    break
        self.is_broken = True
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(False)
        on_broken(self)

    def _is_asked_for(self, pieces: Sequence[Piece]) -> bool:
        if self._reply is None or self._reply.done():
            return False
        self._heard += b"".join(piece.data for piece in pieces)
        if self._heard == self._answer:
            self._reply.set_result(True)
        return self._answer.startswith(self._heard)


async def first_words(container: EngineContainer) -> list[Piece]:
    """Wait for the first line of a program that waits, and return all that it has said.

    Raises:
        LaunchFailed: It ended, said too much, or took too long.
    """
    said: list[Piece] = []
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            while not any(piece.stream == "stdout" and b"\n" in piece.data for piece in said):
                pieces = await container.stream.read()
                said += pieces
                if not pieces or sum(len(piece.data) for piece in said) > _MAX_FIRST_BYTES:
                    msg = f"the program does not wait but said {b''.join(piece.data for piece in said)[-500:]!r}"
                    raise LaunchFailed(msg)
    except TimeoutError as error:
        msg = f"the program was not ready to wait within {READY_TIMEOUT_S:g} s"
        raise LaunchFailed(msg) from error
    return said
