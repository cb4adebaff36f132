"""The one way in which sessions get containers: one that waits in the pool, else one that is parked and used at once."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from aeolus_sandbox.engine.base import (
    DEADLINE_LABEL,
    IDEMPOTENCY_LABEL,
    OWNER_LABEL,
    SESSION_LABEL,
    ContainerSpec,
    Engine,
    EngineContainer,
)
from aeolus_sandbox.engine.image_catalog import resolve_image
from aeolus_sandbox.errors import ConfigurationError, EngineError, ShellMissing
from aeolus_sandbox.hardening import container_spec
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.profiles import SandboxProfile
from aeolus_sandbox.sandboxes.cold_starts import ColdStarts
from aeolus_sandbox.sandboxes.launch_line import ASK, READY, park_command
from aeolus_sandbox.sandboxes.lease import Lease
from aeolus_sandbox.sandboxes.parked import DirectContainer, ParkedContainer
from aeolus_sandbox.sandboxes.pool import Pool
from aeolus_sandbox.sandboxes.pool_kind import PoolKind
from aeolus_sandbox.sandboxes.pooled import PooledContainer, first_words
from aeolus_sandbox.sandboxes.process import ContainerProcess
from aeolus_sandbox.streaming.tool import IsolationMode

DEADLINE_SLACK_S: Final = 60.0
"""How long after its wall time a container ends by itself, should nobody else end it."""


class Launcher:
    """Starts containers for sessions."""

    def __init__(
        self, engine: Engine, *, owner: str, seccomp: str, pool: Pool, cold_starts: ColdStarts
    ) -> None:
        self._engine = engine
        self._pool = pool
        self._cold_starts = cold_starts
        self._owner = owner
        self._seccomp = seccomp
        self.may_have_launched = False
        """Whether the engine may have containers of ours."""
        self._unparkable: dict[tuple[str, bool, str | None], ShellMissing] = {}

    async def park(
        self,
        profile: SandboxProfile,
        limits: Limits,
        lease: Lease,
        *,
        isolation: IsolationMode = IsolationMode.CONTAINER,
    ) -> ParkedContainer | DirectContainer:
        """Return a parked container, which belongs to the lease; see `ToolContext.park`."""
        if pooled := await self._pooled(profile, limits, lease, isolation):
            return ParkedContainer(pooled.container, tty=profile.tty)
        argv = park_command(tty=profile.tty, deadline_s=_lifetime_s(limits, lease))
        spec = await self._spec(profile, limits, lease, argv, isolation)
        kind = (spec.image, spec.tty, spec.runtime)
        if kind not in self._unparkable:
            container = await self._start_cold(spec, lease)
            parked = ParkedContainer(container, tty=spec.tty)
            try:
                await parked.wait_ready()
            except ShellMissing as error:
                self._unparkable[kind] = error
                await lease.discard(container)
            else:
                return parked
        return DirectContainer(self._engine, spec, reason=self._unparkable[kind], opened=lease.take)

    async def run(
        self,
        profile: SandboxProfile,
        limits: Limits,
        lease: Lease,
        *,
        isolation: IsolationMode = IsolationMode.CONTAINER,
    ) -> ContainerProcess:
        """Start the profile's program in a container that belongs to the lease; see `ToolContext.run`."""
        if profile.argv is None:
            msg = f"the profile of image {profile.image!r} names no program to run"
            raise ConfigurationError(msg)
        if pooled := await self._pooled(profile, limits, lease, isolation):
            return ContainerProcess(pooled.container, tty=profile.tty, said=pooled.said)
        spec = await self._spec(profile, limits, lease, profile.argv, isolation)
        container = await self._start_cold(spec, lease)
        return ContainerProcess(container, tty=profile.tty)

    async def start_ahead(
        self, profile: SandboxProfile, limits: Limits, lease: Lease, *, isolation: IsolationMode
    ) -> PooledContainer:
        """Start a container that waits for its user, and belongs to the lease until then.

        Raises:
            EngineError: It could not be started, or does not wait; nothing is left of it.
        """
        warm = profile.warm
        if profile.argv is None:
            argv = park_command(tty=profile.tty, deadline_s=_lifetime_s(limits, lease))
        else:
            assert warm is not None  # others are not kept in a pool
            argv = warm.argv
        spec = await self._spec(profile, limits, lease, argv, isolation)
        container = await self._launch(spec, lease)
        try:
            if profile.argv is None or warm is None:
                await ParkedContainer(container, tty=spec.tty).wait_ready()
                return PooledContainer(container, ask=ASK, answer=READY)
            said = await first_words(container)
            return PooledContainer(container, ask=warm.ask, answer=warm.answer, said=said)
        except EngineError:
            await lease.discard(container)
            raise

    async def _pooled(
        self, profile: SandboxProfile, limits: Limits, lease: Lease, isolation: IsolationMode
    ) -> PooledContainer | None:
        """Return a container that waits, where one of this kind does and may be used."""
        if lease.idempotency_key is not None:  # it stands on the container, by which a later attempt finds it
            return None
        kind = PoolKind.of(profile, limits, isolation)
        return await self._pool.take(kind, lease, use_s=lease.lifetime_s or limits.wall_time_s)

    async def _start_cold(self, spec: ContainerSpec, lease: Lease) -> EngineContainer:
        async with self._cold_starts.turn():
            return await self._launch(spec, lease)

    async def _launch(self, spec: ContainerSpec, lease: Lease) -> EngineContainer:
        try:
            container = await self._engine.launch(spec)
        except EngineError:  # nothing is left of it
            raise
        except BaseException:
            self.may_have_launched = True
            raise
        self.may_have_launched = True
        await lease.take(container)
        return container

    async def _spec(
        self,
        profile: SandboxProfile,
        limits: Limits,
        lease: Lease,
        argv: tuple[str, ...],
        isolation: IsolationMode,
    ) -> ContainerSpec:
        if profile.mounts:
            _check_is_local(self._engine.address)
        return container_spec(
            profile,
            image=await asyncio.to_thread(resolve_image, profile.image),  # it may read the image's folder
            argv=argv,
            limits=limits,
            labels=self._labels(limits, lease),
            seccomp=self._seccomp,
            isolation=isolation,
        )

    def _labels(self, limits: Limits, lease: Lease) -> Mapping[str, str]:
        deadline = datetime.now(UTC) + timedelta(seconds=_lifetime_s(limits, lease))
        labels = {
            OWNER_LABEL: self._owner,
            SESSION_LABEL: lease.session_id,
            DEADLINE_LABEL: f"{deadline.timestamp():.0f}",
        }
        if lease.idempotency_key is not None:
            labels[IDEMPOTENCY_LABEL] = lease.idempotency_key
        return labels


def _check_is_local(address: str | None) -> None:
    if address is not None and not address.startswith("unix://"):
        msg = f"the engine at {address!r} is not on this host, and sees none of its folders: nothing can be mounted"
        raise ConfigurationError(msg)


def _lifetime_s(limits: Limits, lease: Lease) -> float:
    return (lease.lifetime_s or limits.wall_time_s) + DEADLINE_SLACK_S
