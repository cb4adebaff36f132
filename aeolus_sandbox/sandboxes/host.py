"""Everything a manager needs for its containers: engine, launcher, pool, kept ones, guard and reaper, under one roof."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.capabilities import NO_LOGS, ReadLogs
from aeolus_sandbox.engine.base import Engine
from aeolus_sandbox.errors import EngineError, EngineUnavailable, SessionClosed
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.resources import shipped_folder
from aeolus_sandbox.sandboxes.cold_starts import ColdStarts
from aeolus_sandbox.sandboxes.context import SandboxContext
from aeolus_sandbox.sandboxes.guard import Guard
from aeolus_sandbox.sandboxes.kept import KeptStore
from aeolus_sandbox.sandboxes.launcher import Launcher
from aeolus_sandbox.sandboxes.lease import Lease
from aeolus_sandbox.sandboxes.owner import Owner
from aeolus_sandbox.sandboxes.pool import Pool
from aeolus_sandbox.sandboxes.pool_settings import PoolSettings
from aeolus_sandbox.sandboxes.pool_shelf import Shelf
from aeolus_sandbox.sandboxes.pooled import PooledContainer
from aeolus_sandbox.sandboxes.preparation import PackageImages
from aeolus_sandbox.sandboxes.reaper import Reaped, Reaper
from aeolus_sandbox.streaming.filters import Filter
from aeolus_sandbox.streaming.tool import IsolationMode

_logger = logging.getLogger(__name__)

REAP_INTERVAL_S: Final = 300.0
"""How often a manager looks for containers of owners that are gone."""
SHUTDOWN_TIMEOUT_S: Final = 60.0
_SECCOMP_PROFILE: Final = "default.json"


class SandboxHost:
    """Gives sessions their contexts, and leaves no container behind."""

    def __init__(
        self,
        engine: Engine,
        *,
        tasks: BackgroundTasks,
        kept_idle_s: float,
        kept_lifetime_s: float,
        max_kept: int,
        locks: Path,
        pool: PoolSettings,
    ) -> None:
        self.owner = str(Owner.this_process())
        self.kept = KeptStore(tasks, idle_s=kept_idle_s, lifetime_s=kept_lifetime_s, max_kept=max_kept)
        self._cold_starts = ColdStarts()
        self.pool = Pool(
            pool,
            tasks,
            start=self._start_ahead,
            cold_starts=self._cold_starts,
            kept_use_s=self.kept.longest_use_s,
        )
        self._engine = engine
        self._tasks = tasks
        self._images = PackageImages(engine, tasks, locks=locks)
        self._reaper = Reaper(engine)
        self._launcher: Launcher | None = None
        self._preparing = asyncio.Lock()
        self._guard: Guard | None = None
        self._reap_timer: asyncio.TimerHandle | None = None
        self._unreleased: set[SandboxContext] = set()
        self._closed = False

    def context(
        self,
        session_id: str,
        *,
        limits: Limits,
        isolation: IsolationMode,
        namespace: str,
        filters: Sequence[Filter] = (),
        idempotency_key: str | None = None,
        progress: str | None = None,
        log_access: ReadLogs = NO_LOGS,
        may_pause_s: float = 0.0,
    ) -> SandboxContext:
        """Return the context of a new session, to be given back to `release`."""
        lifetime_s = limits.wall_time_s + may_pause_s
        context = SandboxContext(
            lease=Lease(session_id, self._tasks, lifetime_s=lifetime_s, idempotency_key=idempotency_key),
            limits=limits,
            isolation=isolation,
            launcher=self._prepared_launcher,
            kept=self.kept,
            namespace=namespace,
            images=self._images,
            filters=filters,
            progress=progress,
            log_access=log_access,
        )
        self._unreleased.add(context)
        return context

    async def release(self, context: SandboxContext) -> None:
        """Remove the containers of a session; those that cannot be are tried again at the end."""
        try:
            await context.aclose()
        except EngineError as error:
            _logger.warning("containers of the session %r are left for later: %s", context.session_id, error)
        else:
            self._unreleased.discard(context)

    async def reap(self) -> Reaped:
        """Remove the containers of owners that are gone; see `Reaper.sweep`."""
        return await self._reaper.sweep()

    async def remove_run(self, idempotency_key: str) -> Reaped:
        """Remove the containers of a run whose process is gone; see `Reaper.sweep_run`."""
        return await self._reaper.sweep_run(idempotency_key)

    async def aclose(self) -> None:
        """Remove all containers, and end the guard.

        Raises:
            EngineError: Containers are left; the guard goes on trying.
        """
        self._closed = True
        if self._reap_timer is not None:
            self._reap_timer.cancel()
        failure = await self._remove_everything()
        await self._tasks.aclose(timeout_s=SHUTDOWN_TIMEOUT_S)
        if failure is None and self._launcher is not None and self._launcher.may_have_launched:
            failure = await self._remove_the_overlooked()
        if self._guard is not None:
            await self._guard.aclose(clean=failure is None)
        if failure is not None:
            raise failure

    async def _remove_everything(self) -> EngineError | None:
        failure = None
        for close in (self.pool.aclose, self.kept.aclose):
            try:
                await close()
            except EngineError as error:
                failure = error
        for context in list(self._unreleased):
            await self.release(context)
        if self._unreleased:
            failure = failure or EngineError("some containers could not be removed")
        return failure

    async def _remove_the_overlooked(self) -> EngineError | None:
        """Ask the engine itself whether anything of ours is left: what a crashed call left behind nobody holds."""
        try:
            reaped = await self._reaper.sweep_owner(self.owner)
        except EngineError as error:
            return error
        return EngineError(f"could not remove the containers {reaped.failed}") if reaped.failed else None

    async def _prepared_launcher(self) -> Launcher:
        """Return the launcher; the first call reads the profile, starts the guard, and reaps what others left."""
        async with self._preparing:
            if self._launcher is None:
                address = self._engine.address
                seccomp = await asyncio.to_thread(_seccomp_profile)
                if self._closed:
                    msg = "the session manager was closed"
                    raise SessionClosed(msg)
                self._launcher = Launcher(
                    self._engine,
                    owner=self.owner,
                    seccomp=seccomp,
                    pool=self.pool,
                    cold_starts=self._cold_starts,
                )
                if address is not None:
                    self._guard = Guard(self.owner, address)
                    self._tasks.start(self._guard.start(), name="start the guard")
                self._reap_now()
            return self._launcher

    async def _start_ahead(self, shelf: Shelf) -> PooledContainer:
        launcher = await self._prepared_launcher()
        kind = shelf.kind
        return await launcher.start_ahead(kind.profile, shelf.limits, shelf.lease, isolation=kind.isolation)

    def _reap_now(self) -> None:
        self._tasks.start(self._reap_quietly(), name="reap")
        self._reap_timer = asyncio.get_running_loop().call_later(REAP_INTERVAL_S, self._reap_now)

    async def _reap_quietly(self) -> None:
        try:
            await self.reap()
        except EngineUnavailable as error:
            _logger.debug("no engine to look for abandoned containers: %s", error)  # whoever needs it is told
        except EngineError as error:
            _logger.warning("could not look for abandoned containers: %s", error)


def _seccomp_profile() -> str:
    return (shipped_folder("seccomp") / _SECCOMP_PROFILE).read_text("utf-8")
