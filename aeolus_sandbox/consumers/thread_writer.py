"""Writing in a thread, in order, so that a slow terminal or disk never holds up the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ThreadWriter(Generic[T]):
    """Gives items to a function that blocks, one call after the other; what came during a call goes into the next.

    All methods belong to one event loop at a time. An error of the function is raised once, by the next wait; the
    items of the failed call are not tried again.
    """

    def __init__(self, write: Callable[[Sequence[T]], object], *, max_weight: int) -> None:
        """Make one.

        Args:
            write: Called in a thread with at least one item.
            max_weight: How much may wait before whoever puts something in has to wait.
        """
        self._write = write
        self._max_weight = max_weight
        self._items: list[T] = []
        self._weight = 0
        self._call: asyncio.Future[Any] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._error: BaseException | None = None

    def put(self, item: T, *, weight: int = 1) -> bool:
        """Take an item, and return whether all is well: if not, `wait_for_room` comes next, or it is full."""
        self._items.append(item)
        self._weight += weight
        if self._call is None:
            self._start()
        return self._weight <= self._max_weight and self._error is None

    async def wait_for_room(self) -> None:
        """Wait until there is room again.

        Raises:
            Exception: A call of the function failed.
        """
        while self._weight > self._max_weight and self._call is not None:
            await self._end_of_call()
        self._raise_error()

    async def flush(self) -> None:
        """Wait until all that was taken is written.

        Raises:
            Exception: A call of the function failed.
        """
        while self._call is not None:
            await self._end_of_call()
        self._raise_error()

    def _start(self) -> None:
        taken, self._items, self._weight = self._items, [], 0
        self._call = asyncio.get_running_loop().run_in_executor(None, self._write, taken)
        self._call.add_done_callback(self._ended)

    def _ended(self, call: asyncio.Future[Any]) -> None:
        self._call = None
        if not call.cancelled() and (error := call.exception()) is not None:
            self._error = self._error or error
        if self._items:
            self._start()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _end_of_call(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
