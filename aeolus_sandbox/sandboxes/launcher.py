"""The one way in which containers start: park one, and hand it over."""

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
from aeolus_sandbox.sandboxes.launch_line import park_command
from aeolus_sandbox.sandboxes.lease import Lease
from aeolus_sandbox.sandboxes.parked import DirectContainer, ParkedContainer
from aeolus_sandbox.sandboxes.process import ContainerProcess

DEADLINE_SLACK_S: Final = 60.0
"""How long after its wall time a container ends by itself, should nobody else end it."""


class Launcher:
    """Starts containers for sessions."""

    def __init__(self, engine: Engine, *, owner: str, seccomp: str) -> None:
        self._engine = engine
        self._owner = owner
        self._seccomp = seccomp
        self.may_have_launched = False
        """Whether the engine may have containers of ours."""
        self._unparkable: dict[tuple[str, bool], ShellMissing] = {}

    async def park(
        self, profile: SandboxProfile, limits: Limits, lease: Lease
    ) -> ParkedContainer | DirectContainer:
        """Return a parked container, which belongs to the lease; see `ToolContext.park`."""
        spec = await self._spec(
            profile, limits, lease, park_command(tty=profile.tty, deadline_s=_lifetime_s(limits, lease))
        )
        kind = (spec.image, spec.tty)
        if kind not in self._unparkable:
            container = await self._launch(spec, lease)
            parked = ParkedContainer(container, tty=spec.tty)
            try:
                await parked.wait_ready()
            except ShellMissing as error:
                self._unparkable[kind] = error
                await lease.discard(container)
            else:
                return parked
        return DirectContainer(self._engine, spec, reason=self._unparkable[kind], opened=lease.take)

    async def run(self, profile: SandboxProfile, limits: Limits, lease: Lease) -> ContainerProcess:
        """Start the profile's program in a container that belongs to the lease; see `ToolContext.run`."""
        if profile.argv is None:
            msg = f"the profile of image {profile.image!r} names no program to run"
            raise ConfigurationError(msg)
        container = await self._launch(await self._spec(profile, limits, lease, profile.argv), lease)
        return ContainerProcess(container, tty=profile.tty)

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
        self, profile: SandboxProfile, limits: Limits, lease: Lease, argv: tuple[str, ...]
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
