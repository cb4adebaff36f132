"""The reaper: removes containers whose owner is gone, by label and only by label; it never prunes."""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict

from aeolus_sandbox.engine.base import DEADLINE_LABEL, IDEMPOTENCY_LABEL, OWNER_LABEL, ContainerId, Engine
from aeolus_sandbox.errors import ConfigurationError, EngineError
from aeolus_sandbox.sandboxes.owner import Owner

_logger = logging.getLogger(__name__)


class Reaped(BaseModel):
    """What one sweep did."""

    model_config = ConfigDict(frozen=True)

    removed: tuple[str, ...] = ()
    """Ids of the containers that were removed."""
    failed: tuple[str, ...] = ()
    """Ids of the containers that should have been, and are tried again at the next sweep."""
    living: int = 0
    """How many containers belong to an owner that is alive."""


def _utc_now() -> float:
    return datetime.now(UTC).timestamp()


def is_abandoned(labels: Mapping[str, str], *, now: float | None = None) -> bool:
    """Return whether a container with these labels has no owner any more; blocks for a moment to look.

    Args:
        labels: The container's labels.
        now: The time, in seconds since 1970; None: the clock's.
    """
    try:
        liveness = Owner.parse(labels[OWNER_LABEL]).liveness()
    except ConfigurationError:  # the label of some other program or version: only its deadline counts
        liveness = "unknown"
    if liveness != "unknown":
        return liveness == "gone"
    try:
        return float(labels[DEADLINE_LABEL]) < (_utc_now() if now is None else now)
    except (KeyError, ValueError):
        return False


class Reaper:
    """Sweeps the engine for containers of owners that are gone.

    An owner on this machine is alive or gone, whatever the clocks say. For one on another machine (a shared or remote
    engine) only the deadline on the container can tell, which was written with the owner's clock.
    """

    def __init__(self, engine: Engine, *, now: Callable[[], float] = _utc_now) -> None:
        self._engine = engine
        self._now = now

    async def sweep(self) -> Reaped:
        """Remove every container whose owner is gone.

        Raises:
            EngineError: The engine does not list its containers.
        """
        containers = await self._engine.list_containers({OWNER_LABEL: None})
        doomed = [container.id for container in containers if is_abandoned(container.labels, now=self._now())]
        return await self._remove(doomed, living=len(containers) - len(doomed))

    async def sweep_owner(self, owner: str) -> Reaped:
        """Remove every container of one owner, alive or not.

        Raises:
            EngineError: The engine does not list its containers.
        """
        return await self._remove_all({OWNER_LABEL: owner})

    async def sweep_run(self, idempotency_key: str) -> Reaped:
        """Remove every container of a run with this key, whoever owns it.

        Raises:
            EngineError: The engine does not list its containers.
        """
        return await self._remove_all({IDEMPOTENCY_LABEL: idempotency_key})

    async def _remove_all(self, labels: Mapping[str, str]) -> Reaped:
        containers = await self._engine.list_containers(labels)
        return await self._remove([container.id for container in containers], living=0)

    async def _remove(self, doomed: list[ContainerId], *, living: int) -> Reaped:
        removed: list[str] = []
        failed: list[str] = []
        for container in doomed:
            try:
                await self._engine.remove_container(container)
            except EngineError as error:
                _logger.warning("could not remove the container %s: %s", container, error)
                failed.append(container)
            else:
                removed.append(container)
        return Reaped(removed=tuple(removed), failed=tuple(failed), living=living)
