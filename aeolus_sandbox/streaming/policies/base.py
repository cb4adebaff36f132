"""What a policy is: configuration, and a view over one session's spool."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, SerializeAsAny

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import AeolusError
from aeolus_sandbox.streaming.approval import Approvals
from aeolus_sandbox.streaming.chunks import C
from aeolus_sandbox.streaming.filters import Filter
from aeolus_sandbox.streaming.spool import Record, Spool
from aeolus_sandbox.streaming.text_model import TextModel

M = TypeVar("M", bound=BaseModel)

_PART_CHUNKS = 64
"""How many chunks of a batch a reader takes at once."""
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
    chunks_summarised: int = 0
    """Chunks that a summary stands for."""
    chunks_withheld: int = 0
    """Chunks that were not approved."""

    @property
    def estimated_tokens_held(self) -> int:
        """About how many tokens of a language model the waiting chunks are."""
        return -(-self.characters_held // _CHARACTERS_PER_TOKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContext:
    """What a view gets from its session besides the spool: who it works for, and whom it can ask."""

    session_id: str
    run_key: str
    """Names the run across restarts of the host: the idempotency key, else the session's id."""
    tool_name: str
    tasks: BackgroundTasks
    """For work that goes on between two calls of the reader."""
    pause_clock: Callable[[], AbstractContextManager[None]]
    """The session's time limits stand still inside it."""
    halt: Callable[[], None]
    """Ends the session, as if its caller had cancelled it."""
    text_model: Callable[[str], TextModel]
    """Gives the language model of a name such as `anthropic/claude-haiku-4-5`."""
    approvals: Approvals
    """Where decisions are asked for."""


class PolicyView(ABC, Generic[C]):
    """One policy at work over one session's spool; used by one reader at a time."""

    def ready(self) -> C | None:
        """Return the next chunk where it is at hand, or None: then `next_chunk` says more.

        For many chunks that have come at once, without the price of a coroutine for each.
        """
        return None

    @abstractmethod
    async def next_chunk(self) -> C | None:
        """Return the next chunk for the reader, or None at the end.

        Cancelling the call loses nothing: between taking a chunk off and returning it there is no await.
        """

    @abstractmethod
    def context_window(self) -> ContextWindow:
        """Return what the reader has before it."""

    async def result(self, final: M) -> M:
        """Return what the caller gets as the tool's result; called by `finalize`, after the tool's end.

        What the policy still has to do with the output is done when it returns.
        """
        return final

    async def aclose(self) -> None:
        """End what goes on in the background; called when the session is closed."""


class Policy(BaseModel, ABC):
    """Base of the policies' configurations."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lets_oldest_go: ClassVar[bool] = False
    """Whether a full spool lets its oldest unread chunk go; otherwise the run ends with `output_limit`."""
    may_pause_s: ClassVar[float] = 0.0
    """How long, in all, the session's clock may stand still."""
    takes_batches: ClassVar[bool] = True
    """Whether its views know batches in the spool (a `Cursor` does); otherwise they get chunk by chunk."""

    filters: tuple[SerializeAsAny[Filter], ...] = ()
    """What is taken out of the text before the policy, and anybody else, gets it; in this order."""

    @property
    def waits_at(self) -> int | None:
        """How many chunks may wait for the reader before the tool does; None: the tool never waits.

        Its view must say how far it has read: a `Cursor` does.
        """
        return None

    def check(self, text_model: Callable[[str], TextModel]) -> None:
        """Check that what the policy needs is there, before anything starts.

        Raises:
            ConfigurationError: It is not: a model's key, say.
        """

    @abstractmethod
    def view(self, spool: Spool[Any], context: PolicyContext) -> PolicyView[Any]:
        """Return a view of this policy over a spool."""


class Cursor(Generic[C]):
    """A reader's place in a spool: what it has read, and what was dropped before it could."""

    def __init__(self, spool: Spool[C]) -> None:
        self._spool = spool
        self.index = 0
        """Index of the next chunk to read."""
        self._read_to = 0
        self._has_skipped = False
        self._batch: Sequence[C] = ()
        self._batch_index = 0
        self._batch_record: Record | None = None
        self._part: Sequence[C] = ()
        """Some chunks of the batch; asked for together, because a batch may make them only then."""
        self._part_index = 0
        self._ready_before = 0
        self._evictions = 0
        self.chunks_dropped = 0
        self.bytes_dropped = 0

    def skip_to(self, index: int) -> None:
        """Drop all chunks before `index`."""
        if index <= self.index:
            return
        self.chunks_dropped += index - self.index
        self._has_skipped = True
        self._move_to(index)

    def catch_up(self) -> None:
        """Note what the spool has let go before it was read."""
        self.skip_to(self._spool.first_index)

    def ready(self) -> C | None:
        """Return the next chunk where it is one inside a batch that has been taken apart; else None, and `take` knows."""
        # The last of a batch takes the long way, which lets go of the batch; so does what comes after a gap.
        if self.index >= self._ready_before or self._has_skipped or self._evictions != self._spool.evictions:
            return None
        at = self.index - self._part_index
        chunk = self._part[at] if at < len(self._part) else self._next_part()
        self._read_to = chunk.span[1]
        self.index += 1
        if self._spool.awaits_room:
            self._spool.note_position(self.index)
        return chunk

    async def take(self) -> C | None:
        """Return the next chunk if it is there, and move on; None when it is not, or was let go meanwhile.

        Raises:
            AeolusError: It is in a batch that cannot be taken apart; the next call goes on after it.
        """
        self._evictions = self._spool.evictions
        self.catch_up()
        if 0 <= (place := self.index - self._batch_index) < len(self._batch):
            return self._taken_from_batch(place)
        index = self.index
        record = self._spool.record(index)
        if record is None:
            return None
        if record.is_batch:
            return await self._first_of_batch(record, index)
        chunk = await self._spool.load(record)
        if chunk is None or self.index != index:
            return None
        self._note_taken(chunk, record.start, record.end)
        self._spool.note_read(record)
        return chunk

    async def _first_of_batch(self, record: Record, index: int) -> C | None:
        try:
            batch = await self._spool.load_batch(record)
        except AeolusError:
            self.skip_to(record.index + record.chunks)
            raise
        if not batch or self.index != index:
            return None
        self._batch, self._batch_index, self._batch_record, self._part = batch, record.index, record, ()
        self._ready_before = record.index + len(batch) - 1
        return self._taken_from_batch(index - record.index)

    def _next_part(self) -> C:
        place = self.index - self._batch_index
        self._part, self._part_index = self._batch[place : place + _PART_CHUNKS], self.index
        return self._part[0]

    def _taken_from_batch(self, place: int) -> C:
        at = self.index - self._part_index
        chunk = self._part[at] if 0 <= at < len(self._part) else self._next_part()
        self._note_taken(chunk, chunk.span.start, chunk.span.end)
        if place == len(self._batch) - 1:
            assert self._batch_record is not None
            self._read_to = self._batch_record.end
            self._spool.note_read(self._batch_record)
            self._batch, self._batch_record, self._part, self._ready_before = (), None, (), 0
        return chunk

    def _note_taken(self, chunk: C, start: int, end: int) -> None:
        dropped = self._dropped_before(start) if self._has_skipped else 0
        if chunk.dropped_bytes != dropped:
            chunk.dropped_bytes = dropped
        self.bytes_dropped += dropped
        self._has_skipped, self._read_to = False, end
        self._move_to(self.index + 1)

    def _dropped_before(self, start: int) -> int:
        return max(0, start - self._read_to)

    def _move_to(self, index: int) -> None:
        self.index = index
        self._spool.note_position(index)

    def waiting(self) -> list[Record]:
        """Return what is before this cursor; of the first, a batch, a part may be behind it."""
        self.catch_up()
        return self._spool.records_from(self.index)

    def context_window(self, *, limit_chunks: int | None) -> ContextWindow:
        """Return what is before this cursor, as the reader is told."""
        waiting = self.waiting()
        start, characters = self._spool.total_bytes, sum(record.characters for record in waiting)
        if waiting:
            first = waiting[0]
            start = self._begin_in(first)
            if start > first.start:
                characters -= first.characters * (start - first.start) // (first.end - first.start)
        return ContextWindow(
            chunks_held=self._spool.next_index - self.index,
            chunks_dropped=self.chunks_dropped,
            bytes_dropped=self.bytes_dropped + (self._dropped_before(start) if self._has_skipped else 0),
            characters_held=characters,
            limit_chunks=limit_chunks,
        )

    def _begin_in(self, record: Record) -> int:
        """Return where the next chunk begins; in a batch that is not taken apart, as if all were of one length."""
        if 0 <= (place := self.index - self._batch_index) < len(self._batch):
            return self._batch[place].span.start
        behind = self.index - record.index if record.is_batch else 0
        return record.start + (record.end - record.start) * behind // record.chunks
