"""What a policy is: configuration, and a view over one session's spool."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from aeolus_sandbox.streaming.chunks import C, OutputChunk
from aeolus_sandbox.streaming.spool import Spool

C_co = TypeVar("C_co", bound=OutputChunk, covariant=True)

_CHARACTERS_PER_TOKEN = 4
"""A usual rule of thumb for English text and code; an estimate, not a tokenizer."""


class ContextWindow(BaseModel):
    """What a session's reader has before it, and what it will not see any more."""

    model_config = ConfigDict(frozen=True)

    chunks_held: int
    """Chunks that wait for the reader."""
    chunks_dropped: int
    """Chunks that the policy dropped from the reader's view."""
    bytes_dropped: int
    """Bytes of the dropped chunks; readable by range while the spool holds them."""
    characters_held: int
    """Characters of the chunks that wait."""
    limit_chunks: int | None
    """How many chunks the policy holds at most; None: as many as fit into the spool."""

    @property
    def estimated_tokens_held(self) -> int:
        """About how many tokens of a language model the waiting chunks are."""
        return -(-self.characters_held // _CHARACTERS_PER_TOKEN)


class PolicyView(Protocol[C_co]):
    """One policy at work over one session's spool; used by one reader at a time."""

    async def next_chunk(self) -> C_co | None:
        """Return the next chunk for the reader, or None at the end.

        Cancelling the call loses nothing: between taking a chunk off and returning it there is no await.
        """
        ...

    def context_window(self) -> ContextWindow:
        """Return what the reader has before it."""
        ...


class Policy(BaseModel, ABC):
    """Base of the policies' configurations."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lets_oldest_go: ClassVar[bool] = False
    """Whether a full spool lets its oldest chunk go; otherwise the run ends with `output_limit`."""

    @abstractmethod
    def view(self, spool: Spool[Any]) -> PolicyView[Any]:
        """Return a view of this policy over a spool."""


class Cursor(Generic[C]):
    """A reader's place in a spool: what it has read, and what was dropped before it could."""

    def __init__(self, spool: Spool[C]) -> None:
        self._spool = spool
        self.index = 0
        """Index of the next chunk to read."""
        self._read_to = 0
        self.chunks_dropped = 0
        self.bytes_dropped = 0

    def skip_to(self, index: int) -> None:
        """Drop all chunks before `index`."""
        if index <= self.index:
            return
        self.chunks_dropped += index - self.index
        self.index = index

    def catch_up(self) -> None:
        """Note what the spool has let go before it was read."""
        self.skip_to(self._spool.first_index)

    async def take(self) -> C | None:
        """Return the next chunk if it is there, and move on; None when it is not, or was let go meanwhile."""
        self.catch_up()
        index = self.index
        record = self._spool.record(index)
        if record is None:
            return None
        chunk = await self._spool.load(record)
        if chunk is None or self.index != index:
            return None
        chunk.dropped_bytes = record.start - self._read_to
        self.bytes_dropped += chunk.dropped_bytes
        self._read_to = record.end
        self.index = index + 1
        self._spool.note_read(record)
        return chunk

    def context_window(self, *, limit_chunks: int | None) -> ContextWindow:
        """Return what is before this cursor."""
        self.catch_up()
        spool = self._spool
        waiting = [
            record for i in range(self.index, spool.next_index) if (record := spool.record(i)) is not None
        ]
        pending = (waiting[0].start if waiting else spool.total_bytes) - self._read_to
        return ContextWindow(
            chunks_held=len(waiting),
            chunks_dropped=self.chunks_dropped,
            bytes_dropped=self.bytes_dropped + pending,
            characters_held=sum(record.characters for record in waiting),
            limit_chunks=limit_chunks,
        )
