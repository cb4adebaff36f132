"""The chunks that a tool streams, and how they become bytes in the spool and chunks again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from aeolus_sandbox.streaming.filters.model_texts import map_texts

C = TypeVar("C", bound="OutputChunk")


class Span(NamedTuple):
    """A range of bytes in a session's spool, from `start` up to but not including `end`."""

    start: int
    end: int

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself: pydantic copies a field's default for every chunk, and the usual way is slow."""
        return self


class OutputChunk(BaseModel):
    """Base of all chunks; a tool's own chunk class adds its fields."""

    model_config = ConfigDict(extra="forbid")

    span: Span = Field(default=Span(0, 0), exclude=True, repr=False)
    """Where the chunk's bytes lie in the spool: `session.read_range(*chunk.span)` gives them again."""
    dropped_bytes: int = Field(default=0, ge=0, exclude_if=lambda value: value == 0)
    """How many bytes right before this chunk the policy dropped from the reader's view."""

    @classmethod
    def trusted_maker(cls) -> "Callable[[dict[str, Any]], Self]":
        """Return what makes chunks of this class unchecked; for what was checked at its door.

        It takes a value for each field, `span` and `dropped_bytes` too, in a dictionary that becomes the chunk's own.
        A chunk costs a quarter of what validation does, and a tenth of `model_construct`: the difference between a log
        line and the next is a few microseconds. It sets what pydantic's `BaseModel` declares as its slots.
        """
        # One set for all chunks of a class: the model adds a name that is assigned to, and none is missing; a copy
        # copies it.
        new, names = object.__new__, set(cls.model_fields)
        values_of, names_of, extra_of, private_of = (
            vars(BaseModel)[slot].__set__
            for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
        )

        def make(values: dict[str, Any]) -> Any:
            chunk = new(cls)
            values_of(chunk, values)
            names_of(chunk, names)
            extra_of(chunk, None)
            private_of(chunk, None)
            return chunk

        return make

    @classmethod
    def combined(cls, chunks: Sequence[Self]) -> Self | None:
        """Return one chunk that stands for all of these, or None where that makes no sense (the default).

        `Buffer` calls it at the end with at least two chunks; where it gives None, the chunks come one by one.
        """
        return None

    def flow(self) -> str | None:
        """Return the name of the text that runs on from chunk to chunk and of which this one is a piece.

        None (the default): the chunk stands alone. A secret that is split over two pieces of a flow is found.
        """
        return None

    def as_text(self) -> str:
        """Return the chunk as text, for a filter, a summary or a human who approves it: by default its JSON."""
        return self.model_dump_json()

    def with_text(self, text: str) -> Self:
        """Return this chunk with another text in the place of `as_text`.

        Raises:
            ValueError: The text is not one that such a chunk can hold.
        """
        changed = self.model_validate_json(text)
        changed.span, changed.dropped_bytes = self.span, self.dropped_bytes
        return changed

    def mapped(self, change: Callable[[str], str]) -> Self:
        """Return this chunk with every text in it changed; what is not text (an image) stays."""
        return map_texts(self, change)


class SummaryChunk(OutputChunk):
    """A summary in the place of the chunks that it covers: what `Summarise` gives."""

    text: str
    """The summary; with what an earlier summary said, which it replaces."""
    covers: tuple[Span, ...]
    """The ranges of bytes that it stands for: `session.read_range(*span)` gives them while they are held."""
    chunks: int
    """How many chunks it stands for."""
    made_by: Literal["model", "truncation"]
    """`model`: a language model wrote it. `truncation`: no model did, and it is the head and tail of the output."""
    note: str | None = None
    """Why it is a truncation."""

    def as_text(self) -> str:
        """Return the summary."""
        return self.text


@dataclass(frozen=True, slots=True)
class ChunkBatch:
    """Many chunks at once, encoded already: what a tool yields in their place where each costs too much alone.

    It is read, let go and dropped from the spool as a whole, and a reader that comes to it holds all of its chunks:
    some 64 KiB are enough.

    Raises:
        ValueError: There is no chunk in it.
    """

    payload: bytes
    """What the tool's `BatchCodec` takes apart."""
    count: int
    """How many chunks it holds, at least one."""
    tag: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            msg = f"a batch holds at least one chunk, not {self.count}"
            raise ValueError(msg)


class ChunkCodec(Protocol[C]):
    """How one tool's chunks lie in the spool: a small tag and a payload for each."""

    merges: bool
    """Whether neighbours of the same tag may be joined into one chunk by joining their payloads."""

    def encode(self, chunk: C) -> tuple[int, bytes]:
        """Return the chunk's tag and payload."""
        ...

    def decode(self, tag: int, payload: bytes) -> C:
        """Return the chunk that `encode` took apart."""
        ...


class BatchCodec(ChunkCodec[C], Protocol[C]):
    """The codec of a tool that yields `ChunkBatch`es."""

    def decode_batch(self, tag: int, payload: bytes, start: int) -> Sequence[C]:
        """Return the chunks of a batch, as many as its `count` says, each with its own span.

        The payload's first byte is at `start`; the spans follow one another, and what belongs to no chunk (a header)
        lies in that of a neighbour, so that what is dropped can be told to the byte.
        """
        ...


class JsonCodec(Generic[C]):
    """One JSON line for each chunk: right for every chunk that is not mere text."""

    merges = False

    def __init__(self, model: type[C]) -> None:
        self._model = model

    def encode(self, chunk: C) -> tuple[int, bytes]:
        """Return the chunk as a JSON line."""
        return 0, chunk.model_dump_json().encode("utf-8", "replace") + b"\n"

    def decode(self, tag: int, payload: bytes) -> C:
        """Return the chunk of a JSON line."""
        return self._model.model_validate_json(payload)
