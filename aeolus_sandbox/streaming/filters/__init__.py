"""Filters: what is taken out of a tool's text before anybody keeps or sees it.

A filter is configuration (pure data); `start` gives it at work over one text that comes in pieces. Filters stand
between the tool and the spool: what they take out is held nowhere.
"""

from aeolus_sandbox.streaming.filters.base import Filter, FilterChain, TextFilter
from aeolus_sandbox.streaming.filters.controls import CleanControls
from aeolus_sandbox.streaming.filters.redaction import Redact
from aeolus_sandbox.streaming.filters.secret_patterns import DEFAULT_SECRET_PATTERNS

__all__ = ["DEFAULT_SECRET_PATTERNS", "CleanControls", "Filter", "FilterChain", "Redact", "TextFilter"]
