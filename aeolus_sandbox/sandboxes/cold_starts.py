"""Starts for callers who wait: so many at once, in the order of their coming, and before any that nobody waits for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

COLD_STARTS_AT_ONCE: Final = 16
"""More at once are no faster, and each of them then comes nearer to its own time limit; fewer leave the engine waiting
where it has many processors. (`scripts/bench latency` tries bare starts 2, 4 and 8 at once.)"""


class ColdStarts:
    """Gives callers their turns, and knows whether there are any."""

    def __init__(self, at_once: int = COLD_STARTS_AT_ONCE) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._under_way = 0
        self._busy_since = 0.0
        self.on_end: Callable[[], None] = lambda: None
        """Called when one has ended."""

    @property
    def busy_s(self) -> float | None:
        """How long there has been somebody who starts or waits, without a break, in seconds; None: there is nobody."""
        return asyncio.get_running_loop().time() - self._busy_since if self._under_way else None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn and hold it."""
        if self._under_way == 0:
            self._busy_since = asyncio.get_running_loop().time()
        self._under_way += 1
        try:
            async with self._turns:
                yield
        finally:
            self._under_way -= 1
            self.on_end()
