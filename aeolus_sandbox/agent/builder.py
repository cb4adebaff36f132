"""`StreamBuilder`: one run with handlers for its events, or as an async iterator over them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Self

from aeolus_sandbox.agent.handlers import AsyncHandler, Handler, Handlers
from aeolus_sandbox.agent.session import AgentSession
from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.consumers.channel import ChannelConsumer, EventsDropped
from aeolus_sandbox.consumers.multi import MultiConsumer
from aeolus_sandbox.events import (
    Content,
    Done,
    Error,
    Event,
    Reasoning,
    SessionStarted,
    StreamConsumer,
    StreamEvent,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    ToolOutput,
)

_EVENTS_AHEAD: Final = 64
"""How many events a run is ahead of whoever iterates over it."""

Run = Callable[[StreamConsumer], Awaitable[AgentSession]]


class StreamBuilder:
    """One run to be: give it handlers and `run()` it, or iterate over its events. It keeps nothing between runs.

    A handler is called in the order of the events, and the run goes on when it has returned, or what it returned was
    awaited. An `_async` handler is a task of its own for each event; all of them have ended when `run` returns. What a
    handler raises ends the run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._handlers: list[tuple[type[Event], Handler]] = []
        self._async_handlers: list[tuple[type[Event], AsyncHandler]] = []
        self.session: AgentSession | None = None
        """What the last run of this builder left, once it has ended."""

    def on_content(self, handler: Callable[[str], object]) -> Self:
        """Call it with each piece of the model's text."""
        return self._on(Content, lambda event: handler(event.content))

    def on_reasoning(self, handler: Callable[[str], object]) -> Self:
        """Call it with each piece of the model's thinking."""
        return self._on(Reasoning, lambda event: handler(event.content))

    def on_session_started(self, handler: Callable[[str], object]) -> Self:
        """Call it with the session's id."""
        return self._on(SessionStarted, lambda event: handler(event.session_id))

    def on_tool_call(self, handler: Callable[[str, str], object]) -> Self:
        """Call it with a tool's name and arguments, as JSON, when the model calls it."""
        return self._on(ToolCallStarted, lambda event: handler(event.tool_name, event.arguments))

    def on_tool_output(self, handler: Callable[[str, str], object]) -> Self:
        """Call it with a tool's name and the text of each chunk that it streams."""
        return self._on(ToolOutput, lambda event: handler(event.tool_name, event.text))

    def on_tool_result(self, handler: Callable[[str, Any], object]) -> Self:
        """Call it with a tool's name and its result, as JSON data."""
        return self._on(ToolCallCompleted, lambda event: handler(event.tool_name, event.result))

    def on_tool_failed(self, handler: Callable[[str, str], object]) -> Self:
        """Call it with a tool's name and why it gave no result."""
        return self._on(ToolCallFailed, lambda event: handler(event.tool_name, event.error))

    def on_error(self, handler: Callable[[str], object]) -> Self:
        """Call it with the error that ends the run."""
        return self._on(Error, lambda event: handler(event.message))

    def on_done(self, handler: Callable[[], object]) -> Self:
        """Call it when the run has ended well."""
        return self._on(Done, lambda _: handler())

    def on_event(self, handler: Callable[[StreamEvent], object]) -> Self:
        """Call it with every event."""
        return self._on(Event, handler)

    def on_tool_call_async(self, handler: Callable[[str, str], Awaitable[object]]) -> Self:
        """As `on_tool_call`, as a task."""
        return self._on_async(ToolCallStarted, lambda event: handler(event.tool_name, event.arguments))

    def on_tool_output_async(self, handler: Callable[[str, str], Awaitable[object]]) -> Self:
        """As `on_tool_output`, as a task."""
        return self._on_async(ToolOutput, lambda event: handler(event.tool_name, event.text))

    def on_tool_result_async(self, handler: Callable[[str, Any], Awaitable[object]]) -> Self:
        """As `on_tool_result`, as a task."""
        return self._on_async(ToolCallCompleted, lambda event: handler(event.tool_name, event.result))

    def on_tool_failed_async(self, handler: Callable[[str, str], Awaitable[object]]) -> Self:
        """As `on_tool_failed`, as a task."""
        return self._on_async(ToolCallFailed, lambda event: handler(event.tool_name, event.error))

    def on_session_started_async(self, handler: Callable[[str], Awaitable[object]]) -> Self:
        """As `on_session_started`, as a task."""
        return self._on_async(SessionStarted, lambda event: handler(event.session_id))

    def on_reasoning_async(self, handler: Callable[[str], Awaitable[object]]) -> Self:
        """As `on_reasoning`, as a task."""
        return self._on_async(Reasoning, lambda event: handler(event.content))

    def on_error_async(self, handler: Callable[[str], Awaitable[object]]) -> Self:
        """As `on_error`, as a task."""
        return self._on_async(Error, lambda event: handler(event.message))

    def on_done_async(self, handler: Callable[[], Awaitable[object]]) -> Self:
        """As `on_done`, as a task."""
        return self._on_async(Done, lambda _: handler())

    def on_content_async(self, handler: Callable[[str], Awaitable[object]]) -> Self:
        """As `on_content`, as a task."""
        return self._on_async(Content, lambda event: handler(event.content))

    def on_event_async(self, handler: Callable[[StreamEvent], Awaitable[object]]) -> Self:
        """As `on_event`, as a task."""
        return self._on_async(Event, handler)

    async def run(self) -> AgentSession:
        """Run to the end, calling the handlers, and return what came of it.

        Raises:
            AeolusError: See `Agent.run_streaming`.
            Exception: Whatever a handler raised.
        """
        async with Handlers(self._handlers, self._async_handlers) as handlers:
            self.session = await self._run(handlers)
        return self.session

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self._events()

    async def _events(self) -> AsyncIterator[StreamEvent]:
        """Run, and yield the events; handlers are called too. Leaving the iteration cancels the run."""
        channel = ChannelConsumer(max_events=_EVENTS_AHEAD, when_full="wait")

        async def work() -> None:
            try:
                async with Handlers(self._handlers, self._async_handlers) as handlers:
                    self.session = await self._run(MultiConsumer().add(handlers).add(channel))
            finally:
                channel.close()

        task = BackgroundTasks().start(work(), name="agent run", awaited=True)
        try:
            async for event in channel:
                assert not isinstance(event, EventsDropped)  # a channel that waits drops none
                yield event
            await task
        finally:
            channel.close()  # nobody reads it any more: the run must not wait for that
            task.cancel()
            await asyncio.wait([task])

    def _on(self, kind: type[Event], handler: Handler) -> Self:
        self._handlers.append((kind, handler))
        return self

    def _on_async(self, kind: type[Event], handler: AsyncHandler) -> Self:
        self._async_handlers.append((kind, handler))
        return self
