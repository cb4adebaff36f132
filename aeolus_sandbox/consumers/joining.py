"""Pieces of text that follow each other, joined into one event."""

from dataclasses import dataclass, field
from datetime import datetime

from aeolus_sandbox.events import Content, Reasoning, StreamEvent


@dataclass(slots=True)
class Joined:
    """An event, or a run of pieces of text of one kind."""

    first: StreamEvent
    time: datetime
    """When the first one came."""
    elapsed_ms: float
    last_sequence: int
    characters: int = 0
    texts: list[str] = field(default_factory=list)

    @property
    def event(self) -> StreamEvent:
        """The first event, with the text of all."""
        if len(self.texts) < 2:
            return self.first
        return self.first.model_copy(update={"content": "".join(self.texts)})


class Joiner:
    """Joins `content` and `reasoning` events that follow each other without another event between them."""

    def __init__(self, max_characters: int) -> None:
        """Begin.

        Args:
            max_characters: A text that is as long or longer is not added to; what comes then is a new one.
        """
        self._max_characters = max_characters
        self._open: Joined | None = None

    @property
    def open(self) -> Joined | None:
        """What more pieces may still be added to."""
        return self._open

    def feed(self, event: StreamEvent, time: datetime, elapsed_ms: float) -> list[Joined]:
        """Take the next event, and return what nothing can be added to any more."""
        if not isinstance(event, Content | Reasoning):
            return [*self.flush(), Joined(event, time, elapsed_ms, event.sequence)]
        done = [] if self._takes(event) else self.flush()
        if self._open is None:
            self._open = Joined(event, time, elapsed_ms, event.sequence)
        self._open.texts.append(event.content)
        self._open.characters += len(event.content)
        self._open.last_sequence = event.sequence
        return done

    def flush(self) -> list[Joined]:
        """Return what is open, if there is something; nothing is added to it any more."""
        opened, self._open = self._open, None
        return [] if opened is None else [opened]

    def _takes(self, event: Content | Reasoning) -> bool:
        return (
            self._open is not None
            and self._open.first.type == event.type
            and self._open.characters < self._max_characters
        )
