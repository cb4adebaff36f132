"""Texts cut into pieces, as filters get them."""

import itertools
from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from aeolus_sandbox.streaming.filters import Filter, FilterChain

cuts = st.lists(st.integers(0, 400), max_size=20)


def split(text: str, places: Iterable[int]) -> list[str]:
    """Return a text cut at these places, as far as it has them."""
    inside = sorted({0, len(text), *(min(place, len(text)) for place in places)})
    return [text[start:end] for start, end in itertools.pairwise(inside)]


def passed(filters: Filter | Sequence[Filter], pieces: Iterable[str]) -> str:
    """Return what passes of a text that comes in pieces."""
    chain = FilterChain([filters] if isinstance(filters, Filter) else filters)
    return "".join([*map(chain.feed, pieces), chain.flush()])
