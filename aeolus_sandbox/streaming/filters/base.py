"""What a filter is: configuration, and its work over one text that comes in pieces."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from pydantic import BaseModel, ConfigDict


class TextFilter(Protocol):
    """One filter at work over one text.

    However the text is cut into pieces, what comes out is the same in all: a piece that may be the beginning of
    something to take out is held back until it is known.
    """

    def feed(self, text: str) -> str:
        """Take in the next piece, and return what is known to pass."""
        ...

    def flush(self) -> str:
        """Return what is still held, at the end of the text."""
        ...


class Filter(BaseModel, ABC):
    """Base of the filters' configurations."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def start(self) -> TextFilter:
        """Return this filter at the beginning of a text."""


class FilterChain:
    """Several filters one after the other, as one `TextFilter`; without any, everything passes."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._links = [each.start() for each in filters]

    def feed(self, text: str) -> str:
        """Take in the next piece; see `TextFilter.feed`."""
        for link in self._links:
            text = link.feed(text)
        return text

    def flush(self) -> str:
        """Return what is still held; see `TextFilter.flush`."""
        text = ""
        for link in self._links:
            text = link.feed(text) + link.flush()
        return text


def filtered(text: str, filters: Sequence[Filter]) -> str:
    """Return what passes of a whole text."""
    chain = FilterChain(filters)
    return chain.feed(text) + chain.flush()
