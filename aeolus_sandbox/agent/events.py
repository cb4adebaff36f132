"""The events of one run on their way to its consumer: numbered, without secrets, one after the other."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from aeolus_sandbox.consumers.delivery import deliver
from aeolus_sandbox.events import Event, StreamConsumer
from aeolus_sandbox.streaming.filters import Filter
from aeolus_sandbox.streaming.filters.base import filtered
from aeolus_sandbox.streaming.filters.model_texts import map_texts

E = TypeVar("E", bound=Event)

FAREWELL_S: Final = 2.0
"""How long a run that was cancelled waits for its consumer to take one of the last events, in seconds."""
_IDS: Final = ("session_id", "tool_call_id")


class ConsumerFailedError(Exception):
    """The consumer raised; its own error is the cause."""


class EventStream:
    """Numbers events, takes secrets out of them, and gives them to the consumer in their order."""

    def __init__(self, consumer: StreamConsumer, *, session_id: str, filters: Sequence[Filter]) -> None:
        self._consumer = consumer
        self._session_id = session_id
        self._filters = filters
        self._sequence = 0
        self._turn = asyncio.Lock()
        self.failure: BaseException | None = None
        """What the consumer raised; nothing is given to it any more."""

    async def emit(self, kind: type[E], **fields: Any) -> None:
        """Give the consumer an event.

        Raises:
            ConsumerFailedError: It raised.
        """
        async with self._turn:
            await self._give(self._without_secrets(self._next(kind, fields)))

    async def emit_filtered(self, kind: type[E], **fields: Any) -> None:
        """Give the consumer an event whose texts were filtered where they came from: a piece of a text that runs on.

        Raises:
            ConsumerFailedError: It raised.
        """
        async with self._turn:
            await self._give(self._next(kind, fields))

    async def emit_last(self, kind: type[E], **fields: Any) -> None:
        """Tell the consumer how something ended that was cancelled; if it fails or does not listen, it has missed that."""
        with suppress(ConsumerFailedError, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self.emit(kind, **fields)

    def _next(self, kind: type[E], fields: dict[str, Any]) -> E:
        return kind(sequence=self._sequence, session_id=self._session_id, **fields)

    def _without_secrets(self, event: E) -> E:
        if not self._filters:
            return event
        ids = {
            name: getattr(event, name) for name in _IDS if hasattr(event, name)
        }  # events are joined by them
        return map_texts(event, lambda text: filtered(text, self._filters)).model_copy(update=ids)

    async def _give(self, event: Any) -> None:
        if self.failure is not None:
            raise ConsumerFailedError from self.failure
        self._sequence += 1
        try:
            await deliver(self._consumer, event)
        except Exception as error:
            self.failure = error
            raise ConsumerFailedError from error
