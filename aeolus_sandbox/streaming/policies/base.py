"""What a policy is: configuration, and a view over one session's spool."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, SerializeAsAny

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.streaming.approval import Approvals
from aeolus_sandbox.streaming.chunks import C
from aeolus_sandbox.streaming.filters import Filter
from aeolus_sandbox.streaming.spool import Record, Spool
from aeolus_sandbox.streaming.text_model import TextModel

M = TypeVar("M", bound=BaseModel)

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

    filters: tuple[SerializeAsAny[Filter], ...] = ()
    """What is taken out of the text before the policy, and anybody else, gets it; in this order."""

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

    def waiting(self) -> list[Record]:
        """Return what is before this cursor."""
        self.catch_up()
        spool = self._spool
        return [
            record for i in range(self.index, spool.next_index) if (record := spool.record(i)) is not None
        ]

    def context_window(self, *, limit_chunks: int | None) -> ContextWindow:
        """Return what is before this cursor, as the reader is told."""
        waiting = self.waiting()
        pending = (waiting[0].start if waiting else self._spool.total_bytes) - self._read_to
        return ContextWindow(
            chunks_held=len(waiting),
            chunks_dropped=self.chunks_dropped,
            bytes_dropped=self.bytes_dropped + pending,
            characters_held=sum(record.characters for record in waiting),
            limit_chunks=limit_chunks,
        )
