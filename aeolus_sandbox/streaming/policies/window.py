"""`Window`: the newest chunks, as they come; a reader that falls behind loses the oldest, and is told, or is waited for."""

from typing import Any, ClassVar

from pydantic import Field

from aeolus_sandbox.streaming.chunks import C
from aeolus_sandbox.streaming.policies.base import ContextWindow, Cursor, Policy, PolicyContext, PolicyView
from aeolus_sandbox.streaming.spool import Spool


class Window(Policy):
    """Give chunks as they come, and hold at most the newest `max_chunks` for a reader that is slow.

    Where the tool waits for its reader, it has some more chunks under way.
    """

    lets_oldest_go: ClassVar[bool] = True

    max_chunks: int = Field(default=200, ge=1)
    wait_for_reader: bool = False
    """Whether the tool waits for a reader that falls behind, so that it loses nothing; for tools that can wait."""

    @property
    def waits_at(self) -> int | None:
        """How many chunks may wait before the tool does; see `Policy.waits_at`."""
        return self.max_chunks if self.wait_for_reader else None

    def view(self, spool: Spool[Any], context: PolicyContext) -> "WindowView[Any]":
        """Return a view of this policy over a spool."""
        return WindowView(spool, self.max_chunks, slides=not self.wait_for_reader)


class WindowView(PolicyView[C]):
    """The newest chunks of a spool."""

    def __init__(self, spool: Spool[C], max_chunks: int, *, slides: bool = True) -> None:
        self._spool = spool
        self._max_chunks = max_chunks
        self._slides = slides
        self._cursor = Cursor(spool)

    def ready(self) -> C | None:
        """Return a chunk that is at hand; see `PolicyView.ready`."""
        if self._slides:
            self._slide()
        return self._cursor.ready()

    async def next_chunk(self) -> C | None:
        """Return the oldest chunk in the window that was not read; see `PolicyView.next_chunk`."""
        while True:
            if self._slides:
                self._slide()
            chunk = await self._cursor.take()
            if chunk is not None:
                return chunk
            if self._cursor.index < self._spool.next_index:
                continue
            if self._spool.ended:
                return None
            await self._spool.wait_changed()

    def context_window(self) -> ContextWindow:
        """Return what the reader has before it."""
        if self._slides:
            self._slide()
        return self._cursor.context_window(limit_chunks=self._max_chunks)

    def _slide(self) -> None:
        self._cursor.skip_to(self._spool.next_index - self._max_chunks)
