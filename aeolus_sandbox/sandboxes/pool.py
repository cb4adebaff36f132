"""The warm pool: containers that are started ahead, each for one user who then need not wait for a start."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import AeolusError, EngineError, EngineTimeout, SessionClosed
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.sandboxes.cold_starts import ColdStarts
from aeolus_sandbox.sandboxes.lease import Lease
from aeolus_sandbox.sandboxes.pool_kind import PoolKind
from aeolus_sandbox.sandboxes.pool_settings import PoolSettings, PoolStats
from aeolus_sandbox.sandboxes.pool_shelf import OVERLAP_S, Shelf
from aeolus_sandbox.sandboxes.pooled import PooledContainer

_logger = logging.getLogger(__name__)

POOL_SESSION: Final = "pool"
"""What stands in the place of a session's id on a container that waits in a pool; it keeps it when it is used."""
_CHECKS_FOR_A_CALLER: Final = 3
"""So many times `check_timeout_s` a caller looks for a good one, before a start is surely faster."""
_FILL_DELAY_S: Final = 0.05
"""A burst of callers comes within this time: whoever finds nothing parked starts before the pool does."""
_STARVED_AFTER_S: Final = 5.0
"""After so long a time with callers who start cold all along, one start of the pool's may run beside theirs:
otherwise those who come could find nothing for ever."""
_REMOVALS_AT_ONCE: Final = 8

Start = Callable[[Shelf], Awaitable[PooledContainer]]


class Pool:
    """Keeps containers of each kind waiting, as many as were asked for.

    Callers come first: one who finds nothing starts cold at once, and while anybody does, the pool starts nothing.
    Nothing that goes wrong here reaches a caller. A container that was handed out does not come back.
    """

    def __init__(
        self,
        settings: PoolSettings,
        tasks: BackgroundTasks,
        *,
        start: Start,
        cold_starts: ColdStarts,
        kept_use_s: float,
    ) -> None:
        """Make an empty pool.

        Args:
            settings: How it behaves.
            tasks: Runs what nobody waits for.
            start: Starts a container for a shelf, which belongs to the shelf's lease at once.
            cold_starts: Where callers start their own.
            kept_use_s: How long a container may be used that is kept from session to session.
        """
        self._settings = settings
        self._tasks = tasks
        self._start = start
        self._cold_starts = cold_starts
        self._kept_use_s = kept_use_s
        self._shelves: dict[PoolKind, Shelf] = {}
        self._leases: dict[float, Lease] = {}
        """By how long the containers may live, which stands on them."""
        self._starts: set[asyncio.Task[None]] = set()
        self._fill_timer: asyncio.TimerHandle | None = None
        self._care_timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._closed = False
        cold_starts.on_end = self._fill_soon

    def keep(self, kind: PoolKind, limits: Limits, *, tool: str, minimum: int, maximum: int) -> None:
        """Keep so many containers of a kind waiting from now on.

        Raises:
            SessionClosed: The pool is closed.
        """
        self._check_open()
        shelf = self._shelves.get(kind)
        if shelf is None:
            if maximum == 0:
                return
            shelf = self._shelves[kind] = self._new_shelf(kind, limits)
        shelf.tool, shelf.minimum, shelf.maximum, shelf.rests_until = tool, minimum, maximum, 0.0
        if maximum == 0:
            del self._shelves[kind]
        self._retire(shelf)
        self._tell_changed()
        self._fill_soon()
        if self._care_timer is None:
            self._take_care_later()

    async def take(self, kind: PoolKind, lease: Lease, *, use_s: float) -> PooledContainer | None:
        """Hand a container that waits over to a lease; None: there is no good one, and the caller starts its own.

        Args:
            kind: What it must be.
            lease: To whom it belongs from now on.
            use_s: How long it must be able to live, in seconds.

        Raises:
            SessionClosed: The session has ended meanwhile; the container was removed.
        """
        shelf = self._shelves.get(kind)
        if shelf is None or self._closed or use_s > shelf.longest_use_s:
            return None
        loop = asyncio.get_running_loop()
        began = loop.time()
        shelf.demand.note(began)
        self._fill_soon()
        while (pooled := shelf.pop()) is not None:
            if await self._is_good(shelf, pooled):
                shelf.hits += 1
                shelf.lease.let_go(pooled.container)  # nothing is awaited until the other lease has it
                await lease.take(pooled.container)
                return pooled
            if loop.time() > began + _CHECKS_FOR_A_CALLER * self._settings.check_timeout_s:
                break
        shelf.misses += 1
        return None

    async def wait_filled(self, *, timeout_s: float) -> None:
        """Wait until as many wait as were asked for; see `WarmPool.wait_filled`."""
        failures = {shelf: shelf.failures for shelf in self._shelves.values()}
        for shelf in failures:
            shelf.rests_until = 0.0  # somebody waits: what failed long ago may work by now
        self._fill_soon()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._is_filled():
                    _raise_lasting_failure(
                        {shelf: shelf.failures - before for shelf, before in failures.items()}
                    )
                    await self._changed.wait()
        except TimeoutError as error:
            found = "; ".join(
                f"{shelf.kind.profile.image}: {len(shelf.parked)} of {shelf.minimum}"
                for shelf in self._shelves.values()
            )
            msg = f"the pool was not filled within {timeout_s:g} s ({found})"
            raise EngineTimeout(msg) from error

    def _is_filled(self) -> bool:
        self._check_open()
        return all(len(shelf.parked) >= shelf.minimum for shelf in self._shelves.values())

    def stats(self) -> tuple[PoolStats, ...]:
        """Return what there is to say of each kind."""
        now = asyncio.get_running_loop().time()
        return tuple(shelf.stats(now) for shelf in self._shelves.values())

    def stop(self) -> None:
        """Start nothing any more, and hand nothing out."""
        self._closed = True
        for timer in (self._fill_timer, self._care_timer):
            if timer is not None:
                timer.cancel()
        self._tell_changed()

    async def aclose(self) -> None:
        """Remove all containers that wait.

        Raises:
            EngineError: One could not be removed.
        """
        self.stop()
        shelves, self._shelves = self._shelves, {}
        unwanted = [(shelf, pooled) for shelf in shelves.values() for pooled in shelf.parked]

        async def remove_some() -> None:
            while unwanted:
                await self._remove(*unwanted.pop())

        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(unwanted), _REMOVALS_AT_ONCE)):
                group.create_task(remove_some())
        for lease in self._leases.values():  # takes from those that are being started what they wait for
            await lease.aclose()
        if self._starts:
            await asyncio.wait(set(self._starts))
        for lease in self._leases.values():
            await lease.aclose()

    # Filling.

    def _fill_soon(self) -> None:
        if self._fill_timer is None and self._shelves and not self._closed:
            self._fill_timer = asyncio.get_running_loop().call_later(_FILL_DELAY_S, self._fill)

    def _fill(self) -> None:
        self._fill_timer = None
        now = asyncio.get_running_loop().time()
        while not self._closed and len(self._starts) < self._starts_allowed():
            wanting = [
                shelf
                for shelf in self._shelves.values()
                if shelf.rests_until <= now and shelf.missing(now) > 0
            ]
            if not wanting:
                return
            neediest = max(wanting, key=lambda shelf: shelf.missing(now) / shelf.target(now))
            neediest.starting += 1
            task = self._tasks.start(self._start_one(neediest), name="park a container", awaited=True)
            self._starts.add(task)
            task.add_done_callback(self._starts.discard)

    def _starts_allowed(self) -> int:
        busy_s = self._cold_starts.busy_s
        if busy_s is None:
            return self._settings.refill_concurrency
        return 1 if busy_s > _STARVED_AFTER_S else 0

    async def _start_one(self, shelf: Shelf) -> None:
        try:
            pooled = await self._start(shelf)
        except AeolusError as error:
            self._note_failure(shelf, error)
        else:
            self._put(shelf, pooled)
        finally:
            shelf.starting -= 1
            self._tell_changed()
            self._fill_soon()

    def _put(self, shelf: Shelf, pooled: PooledContainer) -> None:
        shelf.put(pooled)
        if self._closed or self._shelves.get(shelf.kind) is not shelf:
            self._discard(shelf, pooled)
            return
        pooled.watch(self._tasks, on_broken=lambda broken: self._note_broken(shelf, broken))
        self._retire(shelf)

    def _note_failure(self, shelf: Shelf, error: AeolusError) -> None:
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        rest_s = shelf.note_failure(error, loop.time())
        if not shelf.has_failed_again:
            _logger.warning("could not park a container of image %r: %s", shelf.kind.profile.image, error)
        loop.call_later(rest_s, self._fill_soon)

    # Care.

    def _take_care_later(self) -> None:
        """Come back when something may be due: one timer for all containers, however many there are."""
        settings = self._settings
        due_s = min(settings.health_check_s, settings.lifetime_s / 2, settings.demand_window_s)
        self._care_timer = asyncio.get_running_loop().call_later(due_s, self._take_care)

    def _take_care(self) -> None:
        self._care_timer = None
        if self._shelves and not self._closed:
            self._tasks.start(self._care(), name="look after parked containers")

    async def _care(self) -> None:
        for shelf in list(self._shelves.values()):
            self._retire(shelf)
            # One after the other: it is not urgent, and costs next to nothing so.
            for pooled in shelf.parked:
                if self._closed:
                    return
                if not await pooled.answers(timeout_s=self._settings.check_timeout_s):
                    self._note_broken(shelf, pooled)
        self._fill_soon()
        if not self._closed:
            self._take_care_later()

    def _retire(self, shelf: Shelf) -> None:
        """Let go of those that are too many or too old."""
        for pooled in shelf.pop_unwanted(asyncio.get_running_loop().time()):
            shelf.expired += 1
            self._discard(shelf, pooled)

    def _note_broken(self, shelf: Shelf, pooled: PooledContainer) -> None:
        if shelf.remove(pooled):  # otherwise somebody has it, and has found out or will
            shelf.discarded += 1
            self._discard(shelf, pooled)
            self._fill_soon()

    # Handing out and removing.

    async def _is_good(self, shelf: Shelf, pooled: PooledContainer) -> bool:
        try:
            if shelf.is_overdue(pooled, asyncio.get_running_loop().time()):
                shelf.expired += 1
                self._discard(shelf, pooled)
                return False
            is_good = await pooled.answers(timeout_s=self._settings.check_timeout_s) and await pooled.take()
        except BaseException:  # the caller was cancelled: nobody knows what it says next
            self._discard(shelf, pooled)
            raise
        if not is_good:
            shelf.discarded += 1
            self._discard(shelf, pooled)
        return is_good

    def _discard(self, shelf: Shelf, pooled: PooledContainer) -> None:
        shelf.remove(pooled)
        self._tasks.start(self._remove(shelf, pooled), name="discard a parked container")

    async def _remove(self, shelf: Shelf, pooled: PooledContainer) -> None:
        await pooled.take()
        try:
            await shelf.lease.discard(pooled.container)
        except EngineError as error:
            _logger.warning("a parked container is left until the manager closes: %s", error)

    def _new_shelf(self, kind: PoolKind, limits: Limits) -> Shelf:
        use_s = limits.wall_time_s if kind.profile.argv is None else self._kept_use_s
        lifetime_s = self._settings.lifetime_s + OVERLAP_S + use_s
        lease = self._leases.setdefault(lifetime_s, Lease(POOL_SESSION, self._tasks, lifetime_s=lifetime_s))
        return Shelf(kind, limits, self._settings, lease=lease, longest_use_s=use_s)

    def _check_open(self) -> None:
        if self._closed:
            msg = "the session manager is closed"
            raise SessionClosed(msg)

    def _tell_changed(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _raise_lasting_failure(new_failures: dict[Shelf, int]) -> None:
    """Raise what a kind fails with again and again, or what will not be better for being tried again."""
    for shelf, count in new_failures.items():
        failure = shelf.last_failure
        if count and failure is not None and (count > 2 or not failure.retryable):
            raise failure
