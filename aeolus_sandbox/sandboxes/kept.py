"""What outlives a session under a key, such as a kernel with its state: leased to one session at a time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import EngineError, QuotaExceeded, SessionClosed
from aeolus_sandbox.limits import LONGEST_WALL_TIME_S
from aeolus_sandbox.sandboxes.lease import Lease
from aeolus_sandbox.streaming.tool import Kept

_logger = logging.getLogger(__name__)

IDLE_S: Final = 600.0
"""How long something is kept that no session uses."""
LIFETIME_S: Final = 24 * 3600.0
"""How long something is kept at most, used or not."""
MAX_KEPT: Final = 16
"""How many are kept at once; beyond it, the one that was not used for longest goes."""
_MAX_LOST: Final = 1000


Make = Callable[[Lease], Awaitable[Kept]]


@dataclass(frozen=True, slots=True)
class KeptItem:
    """What is kept under a key, at a moment."""

    key: str
    image: str
    language: str | None
    age_s: float
    idle_s: float
    """How long nobody has used it; 0 while somebody does."""
    is_busy: bool
    """Whether somebody uses it, or waits for it."""


@dataclass(slots=True)
class _Entry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    value: Kept | None = None
    make: Make | None = None
    lease: Lease | None = None
    made_at: float = 0.0
    used_at: float = 0.0
    waiting: int = 0
    timer: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        """Do not let it expire."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def give_up(self) -> Lease | None:
        """Keep nothing any more, and return the lease that is to be closed."""
        self.stop_timer()
        lease, self.value, self.lease = self.lease, None, None
        return lease


class KeptStore:
    """Holds what is kept, with the containers that belong to it, until it is idle for long or the store closes."""

    def __init__(
        self,
        tasks: BackgroundTasks,
        *,
        idle_s: float = IDLE_S,
        lifetime_s: float = LIFETIME_S,
        max_kept: int = MAX_KEPT,
    ) -> None:
        self._tasks = tasks
        self._idle_s = idle_s
        self._lifetime_s = lifetime_s
        self._max_kept = max_kept
        self._entries: dict[str, _Entry] = {}
        self._lost: dict[str, None] = {}
        """Keys, oldest first, of which something was let go that its user has not asked to: the next must be told."""

    @property
    def longest_use_s(self) -> float:
        """How long a container that is kept may have to live: a call may begin just before the end of the lifetime."""
        return self._lifetime_s + LONGEST_WALL_TIME_S

    @asynccontextmanager
    async def borrow(self, key: str, make: Make) -> AsyncIterator[Kept]:
        """Lend what is kept under `key`, made by `make` if need be; others who want it wait in order.

        Raises:
            QuotaExceeded: As many as are allowed are kept, and all are in use.
        """
        async with self._turn(key) as entry:
            if entry.value is None or self._is_too_old(entry) or not await _answers(entry.value):
                await self._replace(key, entry, make)
            assert entry.value is not None
            yield entry.value

    async def renew(self, key: str, make: Make) -> Kept:
        """Return what the caller has borrowed and holds, or another in its place where it has turned out unusable.

        Raises:
            SessionClosed: The store was closed.
            EngineError: It cannot be made; the next who wants it tries again.
        """
        self._check_kept(key)
        entry = self._entries[key]
        if entry.value is None or not entry.value.is_usable:
            await self._replace(key, entry, make)
        assert entry.value is not None
        return entry.value

    @asynccontextmanager
    async def lend(self, key: str) -> AsyncIterator[Kept]:
        """Lend what is kept under `key`, and make nothing.

        Raises:
            SessionClosed: Nothing is kept under it.
        """
        self._check_kept(key)
        async with self._turn(key) as entry:
            if entry.value is None:
                raise _nothing_kept(key)
            yield entry.value

    def keys(self) -> list[str]:
        """Return the keys under which something is kept."""
        return [item.key for item in self.items()]

    def items(self) -> list[KeptItem]:
        """Return what is kept, in the order of the keys."""
        now = asyncio.get_running_loop().time()
        return [
            KeptItem(
                key=key,
                image=entry.value.image,
                language=entry.value.language,
                age_s=now - entry.made_at,
                idle_s=0.0 if entry.waiting else now - entry.used_at,
                is_busy=entry.waiting > 0,
            )
            for key, entry in sorted(self._entries.items())
            if entry.value is not None
        ]

    async def drop(self, key: str) -> None:
        """Remove what is kept under a key, once nobody uses it; without effect when there is nothing."""
        self._lost.pop(key, None)
        if key in self._entries:
            async with self._turn(key) as entry:
                await self._discard(entry)

    async def restart(self, key: str) -> None:
        """Make what is kept under a key anew, as it was made first, once nobody uses it.

        Raises:
            SessionClosed: Nothing is kept under it.
            EngineError: It cannot be made; the next who wants it tries again, and is told that the old one is gone.
        """
        self._check_kept(key)
        async with self._turn(key) as entry:
            if entry.make is None:
                raise _nothing_kept(key)
            await self._replace(key, entry, entry.make, asked_for=True)

    async def aclose(self) -> None:
        """Remove everything that is kept; nobody may be using it any more.

        Raises:
            EngineError: A container could not be removed.
        """
        entries, self._entries = list(self._entries.values()), {}
        failure: EngineError | None = None
        for entry in entries:
            try:
                await self._discard(entry)
            except EngineError as error:  # the others must go all the same
                failure = error
        if failure is not None:
            raise failure

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[_Entry]:
        """Give the entry of a key to one after the other."""
        entry = self._entries.setdefault(key, _Entry())
        entry.waiting += 1
        try:
            async with entry.lock:
                entry.stop_timer()
                yield entry
        finally:
            entry.waiting -= 1
            if entry.waiting == 0:
                self._rest(key, entry)

    async def _replace(self, key: str, entry: _Entry, make: Make, *, asked_for: bool = False) -> None:
        if entry.value is not None:
            self._note_lost(key)  # until there is another, whatever happens in between
        await self._discard(entry)
        self._make_room(entry)
        lease = Lease(key, self._tasks, lifetime_s=self.longest_use_s)
        try:
            entry.value = await make(lease)
        except BaseException:
            self._tasks.start(self._close_quietly(lease), name=f"discard {key}")
            raise
        entry.make, entry.lease, entry.made_at = make, lease, asyncio.get_running_loop().time()
        if key in self._lost and not asked_for:
            entry.value.mark_recreated()
        self._lost.pop(key, None)

    async def _discard(self, entry: _Entry) -> None:
        lease = entry.give_up()
        if lease is not None:
            await lease.aclose()

    def _rest(self, key: str, entry: _Entry) -> None:
        if entry.value is None or not entry.value.is_usable:
            self._let_go(key, entry)
        elif self._entries.get(key) is entry:
            loop = asyncio.get_running_loop()
            entry.used_at = loop.time()
            left_s = max(0.0, entry.made_at + self._lifetime_s - entry.used_at)
            entry.timer = loop.call_later(min(self._idle_s, left_s), self._expire, key, entry)

    def _expire(self, key: str, entry: _Entry) -> None:
        if entry.waiting == 0:
            self._let_go(key, entry)

    def _make_room(self, wanted: _Entry) -> None:
        """Let go of what was not used for longest, until there is room for `wanted`; what is being made counts."""
        kept = {
            key: entry
            for key, entry in self._entries.items()
            if entry is not wanted and (entry.value is not None or entry.waiting > 0)
        }
        while len(kept) >= self._max_kept:
            idle = [key for key, entry in kept.items() if entry.waiting == 0]
            if not idle:
                msg = (
                    f"{self._max_kept} kernels are kept and all are in use: end a session, or raise max_kept"
                )
                raise QuotaExceeded(msg)
            oldest = min(idle, key=lambda key: kept[key].used_at)
            self._let_go(oldest, kept.pop(oldest))

    def _let_go(self, key: str, entry: _Entry) -> None:
        """Remove an entry that nobody uses, in the background."""
        if entry.value is not None:
            self._note_lost(key)
        self._forget(key, entry)
        lease = entry.give_up()
        if lease is not None:
            self._tasks.start(self._close_quietly(lease), name=f"discard {key}")

    async def _close_quietly(self, lease: Lease) -> None:
        try:
            await lease.aclose()
        except EngineError as error:
            _logger.warning("a kept container is left until the manager closes: %s", error)

    def _note_lost(self, key: str) -> None:
        self._lost[key] = None
        if len(self._lost) > _MAX_LOST:
            self._lost.pop(next(iter(self._lost)))

    def _check_kept(self, key: str) -> None:
        if key not in self._entries:
            raise _nothing_kept(key)

    def _forget(self, key: str, entry: _Entry) -> None:
        """Take an entry out, unless another one has taken its place."""
        if self._entries.get(key) is entry:
            del self._entries[key]

    def _is_too_old(self, entry: _Entry) -> bool:
        return asyncio.get_running_loop().time() > entry.made_at + self._lifetime_s


async def _answers(value: Kept) -> bool:
    return value.is_usable and await value.wait_usable()


def _nothing_kept(key: str) -> SessionClosed:
    return SessionClosed(f"nothing is kept under {key!r} any more")
