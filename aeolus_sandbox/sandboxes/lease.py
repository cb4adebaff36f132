"""Which containers belong to one session, so that all of them go when it ends, whatever happened in between."""

from contextlib import suppress

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.engine.base import EngineContainer
from aeolus_sandbox.errors import EngineError, SessionClosed


class Lease:
    """The containers of one session."""

    def __init__(
        self,
        session_id: str,
        tasks: BackgroundTasks,
        *,
        lifetime_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.idempotency_key = idempotency_key
        """By which a later run of the same key finds its containers."""
        self.lifetime_s = lifetime_s
        """How long its containers may live; None: as long as the session's wall time allows."""
        self._tasks = tasks
        self._containers: list[EngineContainer] = []
        self._closed = False

    @property
    def is_empty(self) -> bool:
        """Whether no container is left that must be removed."""
        return not self._containers

    async def take(self, container: EngineContainer) -> None:
        """Take a container over.

        Raises:
            SessionClosed: The session has ended meanwhile; the container was removed.
        """
        self._containers.append(container)
        if self._closed:
            await self.discard(container)
            msg = f"the session {self.session_id!r} was closed while it started"
            raise SessionClosed(msg)

    def let_go(self, container: EngineContainer) -> None:
        """Give a container up that another lease takes; the caller sees to it that one does."""
        self._containers.remove(container)

    async def discard(self, container: EngineContainer) -> None:
        """Remove a container, in the background if the caller is cancelled; one that cannot be is kept in mind."""
        await self._tasks.run(self._remove(container), name="remove a container")

    async def aclose(self) -> None:
        """Remove all containers.

        Raises:
            EngineError: One could not be removed; closing again tries again.
        """
        self._closed = True
        failures = []
        for container in list(self._containers):
            try:
                await self._remove(container)
            except EngineError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def _remove(self, container: EngineContainer) -> None:
        await container.aclose()
        with suppress(ValueError):  # two closings may overlap
            self._containers.remove(container)
