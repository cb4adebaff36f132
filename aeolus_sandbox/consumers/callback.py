"""A consumer that calls a function."""

import inspect
from collections.abc import Awaitable, Callable
from typing import cast

from aeolus_sandbox.events import StreamEvent


class CallbackConsumer:
    """Calls a function with every event; an async one is waited for, and so slows the run."""

    def __init__(self, function: Callable[[StreamEvent], object]) -> None:
        """Make one.

        Args:
            function: Sync or async; what it returns is not used. A sync one must not block.
        """
        self._function = function

    def on_event(self, event: StreamEvent) -> Awaitable[None] | None:
        """Call the function. See `StreamConsumer.on_event`."""
        returned = self._function(event)
        return cast("Awaitable[None]", returned) if inspect.isawaitable(returned) else None
