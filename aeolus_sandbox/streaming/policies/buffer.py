"""`Buffer`: nothing until the end, then everything as one chunk."""

from typing import Any

from aeolus_sandbox.streaming.chunks import C, Span
from aeolus_sandbox.streaming.policies.base import ContextWindow, Cursor, Policy, PolicyContext, PolicyView
from aeolus_sandbox.streaming.spool import Spool


class Buffer(Policy):
    """Collect all chunks, and give them at the end: as one where they combine, else one by one."""

    def view(self, spool: Spool[Any], context: PolicyContext) -> "BufferView[Any]":
        """Return a view of this policy over a spool."""
        return BufferView(spool)


class BufferView(PolicyView[C]):
    """A spool's whole content, once it has ended."""

    def __init__(self, spool: Spool[C]) -> None:
        self._spool = spool
        self._cursor = Cursor(spool)
        self._collected: list[C] = []
        self._combined = False

    async def next_chunk(self) -> C | None:
        """Return the combined chunk after the end; see `PolicyView.next_chunk`."""
        while not self._spool.ended:
            await self._spool.wait_changed()
        while self._cursor.index < self._spool.next_index:
            chunk = await self._cursor.take()
            if chunk is not None:
                self._collected.append(chunk)
        if not self._combined:
            self._combine()
        return self._collected.pop() if self._collected else None

    def context_window(self) -> ContextWindow:
        """Return what the reader has before it."""
        window = self._cursor.context_window(limit_chunks=None)
        return window.model_copy(update={"chunks_held": window.chunks_held + len(self._collected)})

    def _combine(self) -> None:
        self._combined = True
        combined = type(self._collected[0]).combined(self._collected) if len(self._collected) > 1 else None
        if combined is not None:
            combined.span = Span(self._collected[0].span.start, self._collected[-1].span.end)
            combined.dropped_bytes = self._collected[0].dropped_bytes
            self._collected = [combined]
        self._collected.reverse()  # they are given from the end, where taking one off costs nothing
