"""Background tasks that belong to an object instead of to the caller of the moment.

A launch or a removal must run to its end although the caller who asked for it is cancelled: otherwise a container
is left behind. Such work is started here, and whoever owns the `BackgroundTasks` waits for it when it closes.
(`asyncio.TaskGroup` ties its tasks to the task that entered it and cancels them all when one fails: right for
one piece of work, wrong for the independent chores of a manager.)
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class BackgroundTasks:
    """Starts tasks, keeps them referenced, reports those that fail unobserved, and ends them with a time limit."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T], *, name: str, awaited: bool = False) -> asyncio.Task[T]:
        """Start `work` as a task of its own; unless it is `awaited` by somebody, a failure of it is logged."""
        task = asyncio.create_task(work, name=name)  # noqa: TID251 - this is the one place that owns tasks
        self._tasks.add(task)
        task.add_done_callback(self._forget_awaited if awaited else self._forget)
        return task

    async def run(self, work: Coroutine[Any, Any, T], *, name: str) -> T:
        """Run `work` to its end even when the caller is cancelled meanwhile, and return its result."""
        task = self.start(work, name=name, awaited=True)
        await asyncio.wait([task])
        return task.result()

    async def aclose(self, *, timeout_s: float) -> None:
        """Wait for all tasks, at most `timeout_s` seconds, then cancel the rest and wait for their end."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._tasks and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(set(self._tasks), timeout=left)
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(set(self._tasks), timeout=1)

    def _forget_awaited(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here, because a cancelled caller never does

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.warning("background task %r failed: %r", task.get_name(), error)
