"""What a caller can send to a running tool."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from aeolus_sandbox.errors import SessionClosed

_CHANNEL_EVENTS: Final = 16


class UnixSignal(StrEnum):
    """A signal for the program in front."""

    SIGINT = "SIGINT"
    """Interrupt, as Ctrl-C does."""
    SIGTERM = "SIGTERM"
    """Ask to end."""
    SIGKILL = "SIGKILL"
    """End at once."""
    SIGHUP = "SIGHUP"
    """Hang up."""
    SIGQUIT = "SIGQUIT"
    """Quit, as Ctrl-\\ does."""
    SIGUSR1 = "SIGUSR1"
    """Whatever the program takes it for."""
    SIGUSR2 = "SIGUSR2"
    """Whatever the program takes it for."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text input, sent as UTF-8."""

    text: str


@dataclass(frozen=True, slots=True)
class Bytes:
    """Binary input."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal for the program in front."""

    signal: UnixSignal


@dataclass(frozen=True, slots=True)
class Resize:
    """A new size of the terminal, in characters."""

    cols: int
    rows: int


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The end of input, as Ctrl-D on a terminal; output still arrives."""


StdinEvent = Text | Bytes | Signal | Resize | EndOfInput


class StdinSender(Protocol):
    """Takes the events that a caller sends to a running tool."""

    async def send(self, event: StdinEvent) -> None:
        """Pass an event on, waiting while the tool does not take it.

        Raises:
            SessionClosed: The tool takes no more input.
        """
        ...


class StdinChannel:
    """A bounded channel for a tool that reads its events itself: the tool iterates, the session sends."""

    def __init__(self, max_events: int = _CHANNEL_EVENTS) -> None:
        self._max_events = max_events
        self._events: deque[StdinEvent] = deque()
        self._changed = asyncio.Condition()
        self._closed = False

    async def send(self, event: StdinEvent) -> None:
        """Pass an event on; see `StdinSender.send`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or len(self._events) < self._max_events)
            if self._closed:
                msg = "the tool takes no more input"
                raise SessionClosed(msg)
            self._events.append(event)
            self._changed.notify_all()

    async def aclose(self) -> None:
        """Take no more events; those that were sent are still received."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def __aiter__(self) -> AsyncIterator[StdinEvent]:
        """Yield the events in order until the channel is closed."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._closed or bool(self._events))
                if not self._events:
                    return
                event = self._events.popleft()
                self._changed.notify_all()
            yield event
