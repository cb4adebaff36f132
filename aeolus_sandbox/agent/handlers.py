"""Handlers of events as one consumer: plain ones in order, async ones as tasks that end with the run."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Self

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.events import Event, StreamEvent

Handler = Callable[[Any], object]
AsyncHandler = Callable[[Any], Awaitable[object]]

PARALLEL_HANDLERS: Final = 100
"""How many calls of async handlers go on at once; the run waits before it starts more."""


class Handlers:
    """A consumer, for the time of one run; when it is left, the tasks of async handlers have ended."""

    def __init__(
        self,
        handlers: Sequence[tuple[type[Event], Handler]],
        async_handlers: Sequence[tuple[type[Event], AsyncHandler]],
    ) -> None:
        self._handlers = tuple(handlers)
        self._async_handlers = tuple(async_handlers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._background = BackgroundTasks()
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                await self._wait_ended()
        finally:  # a run that was cancelled waits for no handler
            for task in self._tasks:
                task.cancel()
            await self._wait_ended()
        if kind is None:
            self._check()

    async def on_event(self, event: StreamEvent) -> None:
        """Call the handlers of this kind of event. See `StreamConsumer.on_event`.

        Raises:
            Exception: What a handler raises, or an async one has raised.
        """
        self._check()
        for kind, handler in self._handlers:
            if isinstance(event, kind):
                returned = handler(event)
                if inspect.isawaitable(returned):
                    await returned
        for kind, async_handler in self._async_handlers:
            if isinstance(event, kind):
                while len(self._tasks) >= PARALLEL_HANDLERS:
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                self._start(async_handler, event)

    def _start(self, handler: AsyncHandler, event: StreamEvent) -> None:
        async def call() -> None:
            await handler(event)

        task = self._background.start(call(), name="handler", awaited=True)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._failure = self._failure or task.exception()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _wait_ended(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)
