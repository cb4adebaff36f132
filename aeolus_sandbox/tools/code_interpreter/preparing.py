"""A piece of code whose image is made first."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from aeolus_sandbox.errors import SessionClosed
from aeolus_sandbox.exit_status import ExitStatus, Stop
from aeolus_sandbox.streaming.chunks import ChunkBatch
from aeolus_sandbox.streaming.sandbox import ImagePreparation
from aeolus_sandbox.streaming.stdin import StdinEvent
from aeolus_sandbox.streaming.tool import CancelToken, StreamingToolHandle
from aeolus_sandbox.tools.code_interpreter.models import CodeChunk, CodeResult

CodeHandle = StreamingToolHandle[CodeChunk, CodeResult]


def handle_after(
    preparation: ImagePreparation, begin: Callable[[str], Awaitable[CodeHandle]], *, takes_input: bool
) -> CodeHandle:
    """Return the handle of code that `begin` starts in the image, once that is there.

    Args:
        preparation: The image; what the build says comes as `status` chunks.
        begin: Starts the code in the image of a reference, and returns its handle.
        takes_input: Whether that handle takes input.
    """
    code = _PreparedCode(preparation, begin)
    code.shown = StreamingToolHandle(
        chunks=code.chunks(),
        finalize=code.result(),
        stdin=code if takes_input else None,
        cancel=CancelToken(code.stop),
        prepared=code.image_is_there,
    )
    return code.shown


class _PreparedCode:
    """Code that has not begun, and then does what its own handle does."""

    def __init__(self, preparation: ImagePreparation, begin: Callable[[str], Awaitable[CodeHandle]]) -> None:
        self._preparation = preparation
        self._begin = begin
        self._handle: CodeHandle | None = None
        self._stop: Stop | None = None
        self._begun = asyncio.Event()
        self.image_is_there = asyncio.Event()
        self.shown: CodeHandle | None = None
        """What the session holds."""

    async def chunks(self) -> AsyncIterator[CodeChunk | ChunkBatch]:
        """Yield what the build says, then the output of the code."""
        try:
            async for news in self._preparation:
                yield CodeChunk(stream="status", content=news)
            if self._stop is None:
                reference = await self._preparation.reference()
                self.image_is_there.set()
                self._handle = await self._begin(reference)
                assert self.shown is not None
                self.shown.files = self._handle.files
        finally:
            self._preparation.cancel()
            self.image_is_there.set()
            self._begun.set()
        if self._handle is not None:
            async for chunk in self._handle.chunks:
                yield chunk

    async def result(self) -> CodeResult:
        """Return how the code ended, or that it never began."""
        if self._handle is not None:
            return await self._handle.finalize
        assert self._stop is not None
        status = ExitStatus(reason=self._stop.reason, limit_hit=self._stop.limit_hit)
        return CodeResult(success=False, status=status, execution_time_ms=0.0)

    async def send(self, event: StdinEvent) -> None:
        """Pass input on, once the code runs.

        Raises:
            SessionClosed: It never will.
        """
        await self._begun.wait()
        if self._handle is None or self._handle.stdin is None:
            msg = "the code has not begun, and takes no input any more"
            raise SessionClosed(msg)
        await self._handle.stdin.send(event)

    async def stop(self, stop: Stop) -> None:
        """End the build, or the code."""
        self._stop = self._stop or stop
        self._preparation.cancel()
        await self._begun.wait()
        if self._handle is not None:
            await self._handle.cancel.cancel(stop)
