"""The containers of one kind that wait in a pool, and how many there ought to be: does no I/O."""

from collections import deque
from typing import Final

from aeolus_sandbox.errors import AeolusError
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.retrying import growing_wait_s
from aeolus_sandbox.sandboxes.lease import Lease
from aeolus_sandbox.sandboxes.pool_demand import Demand
from aeolus_sandbox.sandboxes.pool_kind import PoolKind
from aeolus_sandbox.sandboxes.pool_settings import PoolSettings, PoolStats
from aeolus_sandbox.sandboxes.pooled import PooledContainer

OVERLAP_S: Final = 30.0
"""How long one that is old may wait for its replacement."""


class Shelf:
    """What a pool knows of one kind of container."""

    def __init__(
        self, kind: PoolKind, limits: Limits, settings: PoolSettings, *, lease: Lease, longest_use_s: float
    ) -> None:
        self.kind = kind
        self.limits = limits
        self.lease = lease
        """To which its containers belong until they are handed out."""
        self.longest_use_s = longest_use_s
        """How long a user may need one; who needs it longer does not get one."""
        self.tool = ""
        self.minimum = self.maximum = 0
        self.demand = Demand(settings.demand_window_s)
        self.starting = 0
        self.rests_until = 0.0
        """When a start may be tried again after a failure."""
        self.hits = self.misses = self.discarded = self.expired = self.failures = 0
        self.last_failure: AeolusError | None = None
        self._settings = settings
        self._failed_in_a_row = 0
        self._parked: deque[PooledContainer] = deque()

    @property
    def parked(self) -> tuple[PooledContainer, ...]:
        """Those that wait, the oldest first."""
        return tuple(self._parked)

    def target(self, now: float) -> int:
        """Return how many are to wait: more than the minimum after a burst that would have needed them."""
        return max(self.minimum, min(self.maximum, self.demand.peak(now)))

    def missing(self, now: float) -> int:
        """Return how many are to be started; those that are old are replaced, and go when that is done."""
        young = sum(not self._is_old(pooled, now) for pooled in self._parked)
        return max(0, self.target(now) - young - self.starting)

    def put(self, pooled: PooledContainer) -> None:
        """Take in one that waits."""
        self._parked.append(pooled)
        self._failed_in_a_row, self.last_failure = 0, None

    def pop(self) -> PooledContainer | None:
        """Give out the oldest, so that few grow old unused."""
        return self._parked.popleft() if self._parked else None

    def remove(self, pooled: PooledContainer) -> bool:
        """Take one out; return whether it was there."""
        try:
            self._parked.remove(pooled)
        except ValueError:
            return False
        return True

    def pop_unwanted(self, now: float) -> list[PooledContainer]:
        """Take out those that are too many, the oldest first, and those that are too old whether replaced or not."""
        unwanted = []
        while self._parked and (
            len(self._parked) > self.target(now) or self.is_overdue(self._parked[0], now)
        ):
            unwanted.append(self._parked.popleft())
        return unwanted

    def is_overdue(self, pooled: PooledContainer, now: float) -> bool:
        """Return whether one is too old to be handed out: it might not live as long as its user needs it."""
        return now > pooled.made_at + self._settings.lifetime_s + OVERLAP_S

    def note_failure(self, error: AeolusError, now: float) -> float:
        """Note that a start has failed, and return how long to rest, in seconds."""
        self.failures += 1
        self._failed_in_a_row += 1
        self.last_failure = error
        rest_s = growing_wait_s(
            self._failed_in_a_row,
            first_s=self._settings.backoff_s,
            longest_s=self._settings.max_backoff_s,
        )
        self.rests_until = now + rest_s
        return rest_s

    @property
    def has_failed_again(self) -> bool:
        """Whether the last start failed, and the one before it too."""
        return self._failed_in_a_row > 1

    def stats(self, now: float) -> PoolStats:
        """Return what there is to say."""
        asked = self.hits + self.misses
        profile = self.kind.profile
        return PoolStats(
            tool=self.tool,
            image=profile.image,
            isolation=self.kind.isolation,
            tty=profile.tty,
            argv=profile.argv,
            minimum=self.minimum,
            maximum=self.maximum,
            target=self.target(now),
            parked=len(self._parked),
            starting=self.starting,
            hits=self.hits,
            misses=self.misses,
            hit_rate=self.hits / asked if asked else None,
            discarded=self.discarded,
            expired=self.expired,
            failures=self.failures,
            last_error=None if self.last_failure is None else str(self.last_failure),
        )

    def _is_old(self, pooled: PooledContainer, now: float) -> bool:
        return now > pooled.made_at + self._settings.lifetime_s
