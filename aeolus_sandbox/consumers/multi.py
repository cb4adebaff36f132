"""A consumer that passes every event on to several."""

import logging
from dataclasses import dataclass
from typing import Final, Literal, Self

from aeolus_sandbox.consumers.delivery import close, deliver
from aeolus_sandbox.events import StreamConsumer, StreamEvent

OnError = Literal["stop", "ignore"]

_logger: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class Member:
    """One of several consumers, and how it has done."""

    consumer: StreamConsumer
    on_error: OnError
    failures: int = 0
    """How many events it failed at."""
    last_error: Exception | None = None


class MultiConsumer:
    """Passes each event on to all of its consumers, one after the other, in the order in which they were added.

    An error of one that was added with `on_error="stop"` ends this at once: those after it do not get the event, and
    the error is raised. Errors of the others are counted, and the first one of each is logged.
    """

    def __init__(self) -> None:
        self._members: list[Member] = []

    @property
    def members(self) -> tuple[Member, ...]:
        """The consumers, in order."""
        return tuple(self._members)

    @property
    def failures(self) -> int:
        """How many errors there were, also those that were ignored."""
        return sum(member.failures for member in self._members)

    def add(self, consumer: StreamConsumer, on_error: OnError = "stop") -> Self:
        """Add a consumer behind those that were added before.

        Args:
            consumer: It gets every event from now on.
            on_error: Whether an error of it stops the run.
        """
        self._members.append(Member(consumer, on_error))
        return self

    async def on_event(self, event: StreamEvent) -> None:
        """Pass an event on. See `StreamConsumer.on_event`.

        Raises:
            Exception: What a consumer raised that was added with `on_error="stop"`.
        """
        for member in self._members:
            try:
                await deliver(member.consumer, event)
            except Exception as error:
                self._note(member, error)
                if member.on_error == "stop":
                    raise

    async def aclose(self) -> None:
        """Close all, in order.

        Raises:
            Exception: The first error of one whose errors stop the run, when all are closed.
        """
        first: Exception | None = None
        for member in self._members:
            try:
                await close(member.consumer)
            except Exception as error:  # noqa: BLE001 - the others are closed all the same
                self._note(member, error)
                if member.on_error == "stop":
                    first = first or error
        if first is not None:
            raise first

    def _note(self, member: Member, error: Exception) -> None:
        member.failures += 1
        member.last_error = error
        if member.on_error == "ignore" and member.failures == 1:
            # Boundary: the message can quote what a tool or a model said; `%r` of it is harmless.
            name = type(member.consumer).__name__
            _logger.warning("the consumer %s failed, and the run goes on without it: %r", name, error)
