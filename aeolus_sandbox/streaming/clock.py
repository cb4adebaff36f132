"""A session's time limits, and the pauses in which they stand still."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aeolus_sandbox.exit_status import Stop
from aeolus_sandbox.limits import LimitName, Limits


class SessionClock:
    """Calls when the wall time or the idle time is over.

    It follows the event loop's clock, which is monotonic: a step of the wall clock changes nothing.
    """

    def __init__(self, limits: Limits, *, may_pause_s: float, over: Callable[[Stop], None]) -> None:
        """Start the clock.

        Args:
            limits: The times.
            may_pause_s: How long it may stand still in all; after that it goes on although it is paused.
            over: Called when a time is over.
        """
        self._loop = asyncio.get_running_loop()
        self._over = over
        self._idle_time_s = limits.idle_time_s
        self._may_pause_s = may_pause_s
        self._wall_left_s = limits.wall_time_s
        self._pauses = 0
        self._is_still = False
        self._since = self._last_activity = self._loop.time()
        self._timers: list[asyncio.TimerHandle] = []
        self._run()

    def touch(self) -> None:
        """Note that something happened: output, or input."""
        self._last_activity = self._loop.time()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stand still while the context lasts."""
        self._pauses += 1
        if self._pauses == 1 and self._may_pause_s > 0 and self._timers:
            self._stand_still()
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._go_on()

    def stop(self) -> None:
        """End it: nothing is called any more."""
        for timer in self._timers:
            timer.cancel()
        self._timers = []

    def _run(self) -> None:
        self._since = self._loop.time()
        self._timers = [self._loop.call_later(self._wall_left_s, self._wall_over)]
        if self._idle_time_s is not None:
            idle_left_s = self._last_activity + self._idle_time_s - self._since
            self._timers.append(self._loop.call_later(idle_left_s, self._check_idle))

    def _stand_still(self) -> None:
        now = self._loop.time()
        self._wall_left_s -= now - self._since
        self._since = now
        self._is_still = True
        self.stop()
        self._timers = [self._loop.call_later(self._may_pause_s, self._go_on)]

    def _go_on(self) -> None:
        if (
            not self._is_still or not self._timers
        ):  # it went on before, because it may not pause for longer; or ended
            return
        self._is_still = False
        self.stop()
        now = self._loop.time()
        self._may_pause_s -= now - self._since
        self._last_activity = min(now, self._last_activity + now - self._since)
        self._run()

    def _wall_over(self) -> None:
        self._over(Stop(reason="timed_out", limit_hit=LimitName.WALL_TIME))

    def _check_idle(self) -> None:
        assert self._idle_time_s is not None
        left_s = self._last_activity + self._idle_time_s - self._loop.time()
        if left_s <= 0:
            self._over(Stop(reason="timed_out", limit_hit=LimitName.IDLE_TIME))
        else:
            self._timers[-1] = self._loop.call_later(left_s, self._check_idle)
