"""What a trace could not keep: counted, told once, and then borne."""

import logging
from dataclasses import dataclass, field
from typing import Final

_logger: Final = logging.getLogger(__name__)
_MESSAGES: Final = 20


@dataclass(slots=True)
class Problems:
    """What went wrong with a trace."""

    lost_events: int = 0
    """How many events could not be written."""
    failures: int = 0
    """How often writing failed."""
    messages: list[str] = field(default_factory=list)
    """What the failures said, each once, at most 20."""

    def note(self, error: Exception, *, trace: str, lost_events: int) -> bool:
        """Count a failure, log it if it is the first one, and return whether it is."""
        self.failures += 1
        self.lost_events += lost_events
        message = str(error)
        if message not in self.messages and len(self.messages) < _MESSAGES:
            self.messages.append(message)
        if self.failures == 1:
            _logger.warning("the trace %r is not whole: %r", trace, error)
        return self.failures == 1

    def __bool__(self) -> bool:
        return self.failures > 0
