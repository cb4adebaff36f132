"""Filters applied to chunks: to the texts that run on from chunk to chunk, and to those that stand alone."""

from collections.abc import Sequence
from typing import Generic

from aeolus_sandbox.streaming.chunks import C
from aeolus_sandbox.streaming.filters.base import Filter, FilterChain, filtered
from aeolus_sandbox.streaming.filters.model_texts import M, map_texts
from aeolus_sandbox.streaming.text import REPLACEMENT


class ChunkFilter(Generic[C]):
    """The filters of one session, over all its chunks in order."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._filters = filters
        self._flows: dict[str, FilterChain] = {}
        self._latest: dict[str, C] = {}

    def feed(self, chunk: C) -> C | None:
        """Return what passes of a chunk, or None where nothing does yet."""
        name = chunk.flow()
        if name is None:
            return chunk.mapped(lambda text: filtered(text, self._filters))
        chain = self._flows.setdefault(name, FilterChain(self._filters))
        self._latest[name] = chunk
        text = chunk.as_text()
        passed = chain.feed(text)
        # Boundary: where the text has a replacement character, the chunk may hold bytes that no filter has seen.
        if passed == text and REPLACEMENT not in text:
            return chunk
        return chunk.with_text(passed) if passed else None

    def flush(self) -> list[C]:
        """Return what is still held, at the end of the output."""
        rest = [(self._latest[name], chain.flush()) for name, chain in self._flows.items()]
        return [chunk.with_text(text) for chunk, text in rest if text]


def filtered_model(model: M, filters: Sequence[Filter]) -> M:
    """Return a model, such as a tool's result, with the filters applied to every text in it."""
    return map_texts(model, lambda text: filtered(text, filters)) if filters else model
