"""How much is asked for at once: pure, and told the time."""

from collections import deque
from dataclasses import dataclass
from typing import Final

_STRETCHES: Final = 30
"""Into how many stretches a window is cut; demand within one is a burst, which a refill does not catch up with."""


@dataclass(slots=True)
class _Stretch:
    began_at: float
    asked: int = 0


class Demand:
    """The largest burst of the last while. It takes as little memory for a million askers as for one."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._stretch_s = window_s / _STRETCHES
        self._stretches: deque[_Stretch] = deque(maxlen=_STRETCHES + 1)

    def note(self, now: float) -> None:
        """Note that somebody asks."""
        if not self._stretches or now >= self._stretches[-1].began_at + self._stretch_s:
            self._stretches.append(_Stretch(now))
        self._stretches[-1].asked += 1

    def peak(self, now: float) -> int:
        """Return how many have asked in one stretch at most."""
        while self._stretches and self._stretches[0].began_at < now - self._window_s:
            self._stretches.popleft()
        return max((stretch.asked for stretch in self._stretches), default=0)
