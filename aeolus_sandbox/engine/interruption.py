"""Stopping a call that blocks: on request, and when its time is over."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

_LOOK_EVERY_S: Final = 0.1


@dataclass(slots=True)
class Interruption:
    """What has stopped the block, if anything did."""

    cancelled: bool = False
    timed_out: bool = False

    def __bool__(self) -> bool:
        return self.cancelled or self.timed_out


@contextmanager
def interruptible(
    stop: Callable[[], None], *, cancel: threading.Event | None, limit_s: float
) -> Iterator[Interruption]:
    """Call `stop` from another thread when `cancel` is set or `limit_s` is over; `stop` must end what blocks."""
    interruption = Interruption()
    finished = threading.Event()
    deadline = time.monotonic() + limit_s

    def watch() -> None:
        while not finished.wait(_LOOK_EVERY_S):
            interruption.cancelled = cancel is not None and cancel.is_set()
            interruption.timed_out = time.monotonic() > deadline
            if interruption:
                stop()
                return

    watcher = threading.Thread(target=watch, name="aeolus-interruptible", daemon=True)
    watcher.start()
    try:
        yield interruption
    finally:
        finished.set()
        watcher.join()
