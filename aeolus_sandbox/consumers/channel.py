"""A consumer whose events another task takes, one by one."""

import asyncio
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, Literal, Self

from aeolus_sandbox.errors import ConfigurationError, ConsumerError
from aeolus_sandbox.events import Done, Error, StreamEvent

WhenFull = Literal["wait", "drop_oldest", "fail"]

MAX_EVENTS: Final = 1000
"""How many events wait at most, unless it is said otherwise."""


@dataclass(frozen=True, slots=True)
class EventsDropped:
    """Stands in a channel where events are missing, because the receiver was too slow for them."""

    count: int
    """How many."""


class ChannelConsumer:
    """A bounded channel: the run puts its events in, and one task of the same event loop iterates over them.

    `async for` ends after the run's last event (`done` or `error`), or when the channel is closed and empty; a new
    one goes on with the next run. A receiver that is cancelled loses nothing.
    """

    def __init__(self, *, max_events: int = MAX_EVENTS, when_full: WhenFull = "wait") -> None:
        """Make one.

        Args:
            max_events: How many events may wait, at least one.
            when_full: What happens to one more. `wait`: the run waits for the receiver. `drop_oldest`: the oldest
                one goes, and the receiver gets an `EventsDropped` in its place. `fail`: it is an error, which stops
                the run.

        Raises:
            ConfigurationError: `max_events` is less than one.
        """
        if max_events < 1:
            msg = f"max_events must be at least 1, not {max_events}"
            raise ConfigurationError(msg)
        self._max_events = max_events
        self._when_full = when_full
        self._events: deque[StreamEvent] = deque()
        self._changed = asyncio.Event()
        self._is_closed = False
        self._run_has_ended = False
        self._missing = 0
        self.dropped = 0
        """How many events were dropped in all."""

    def on_event(self, event: StreamEvent) -> Awaitable[None] | None:
        """Put an event in. See `StreamConsumer.on_event`.

        Raises:
            ConsumerError: The channel is closed, or it is full and that is an error.
        """
        self._check_open()
        if len(self._events) < self._max_events:
            self._put(event)
        elif self._when_full == "wait":
            return self._put_when_there_is_room(event)
        elif self._when_full == "fail":
            msg = f"{self._max_events} events wait in the channel already: read faster, or let it hold more"
            raise ConsumerError(msg)
        else:
            self._events.popleft()
            self._missing += 1
            self.dropped += 1
            self._put(event)
        return None

    def close(self) -> None:
        """Take no more events: the receiver gets those that wait, and the run an error with its next one."""
        self._is_closed = True
        self._changed.set()

    async def aclose(self) -> None:
        """Close it, as `close` does."""
        self.close()

    def __aiter__(self) -> Self:
        self._run_has_ended = False
        return self

    async def __anext__(self) -> StreamEvent | EventsDropped:
        if self._run_has_ended:
            raise StopAsyncIteration
        while not self._events:
            if self._is_closed:
                raise StopAsyncIteration
            await self._change()
        if self._missing:
            missing, self._missing = self._missing, 0
            return EventsDropped(missing)
        event = self._events.popleft()
        self._run_has_ended = isinstance(event, Done | Error)
        self._changed.set()
        return event

    async def _put_when_there_is_room(self, event: StreamEvent) -> None:
        while len(self._events) >= self._max_events:
            await self._change()
            self._check_open()
        self._put(event)

    def _put(self, event: StreamEvent) -> None:
        self._events.append(event)
        self._changed.set()

    async def _change(self) -> None:
        # One signal for both sides: they never wait at the same time, one needs it empty and the other full.
        self._changed.clear()
        await self._changed.wait()

    def _check_open(self) -> None:
        if self._is_closed:
            msg = "the channel is closed: nobody reads the events any more"
            raise ConsumerError(msg)
