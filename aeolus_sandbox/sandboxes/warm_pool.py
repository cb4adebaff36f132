"""What a caller can do about the containers that wait to be used."""

from typing import Any

from aeolus_sandbox.capabilities import Grants, require
from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.sandboxes.pool import Pool
from aeolus_sandbox.sandboxes.pool_kind import PoolKind, check_poolable, check_size
from aeolus_sandbox.sandboxes.pool_settings import PoolStats
from aeolus_sandbox.streaming.tool import I, StreamingTool

FILL_TIMEOUT_S = 120.0


class WarmPool:
    """The containers that a manager keeps waiting; see `SessionManager.pool`.

    A session of a kind that is kept takes one that waits, in a few milliseconds, and starts a cold one at once where
    none does. A container is of a kind when image, program, terminal, mounts, isolation and the limits that a container
    has from its start (memory, processors, processes, open files, sizes of the disks) are the same. It is used once.

    A cold one is always started for a run with an idempotency key, whose container must bear the key; and where a
    session may last longer than the manager's wall time, as one may that waits for a human.

    Where an image is tagged anew while containers of the older one wait, those are still used, for at most
    `PoolSettings.lifetime_s`; to ask for none (`minimum=0`) and then again replaces them at once.
    """

    def __init__(self, pool: Pool, *, limits: Limits, grants: Grants) -> None:
        self._pool = pool
        self._limits = limits
        self._grants = grants

    async def keep(
        self,
        tool: StreamingTool[I, Any, Any],
        tool_input: I,
        *,
        minimum: int,
        maximum: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Have containers wait from now on that sessions of this tool and input can use; returns at once.

        Called again for the same kind, it changes the numbers.

        Args:
            tool: The tool.
            tool_input: An input such as the sessions' will be.
            minimum: How many wait always; 0: none do, unless demand asks for them.
            maximum: How many may wait after a burst that would have needed them; None: as many as `minimum`.
            limits: The limits that the sessions narrow to, where they do.

        Raises:
            CapabilityDenied: The tool requires what was not granted.
            ConfigurationError: Containers of this tool and input cannot wait, or a number or a limit is wrong.
            SessionClosed: The manager is closed.
        """
        for required in tool.requires(tool_input):
            require(tool.name, required, self._grants)
        maximum = minimum if maximum is None else maximum
        check_size(minimum, maximum)
        profile = tool.profile(tool_input)
        if profile is None or not tool.isolation.uses_containers:
            msg = f"the tool {tool.name!r} does not say in what container it runs with this input: it cannot wait"
            raise ConfigurationError(msg)
        check_poolable(profile)
        narrowed = self._limits.narrowed_by(limits)
        kind = PoolKind.of(profile, narrowed, tool.isolation)
        narrowed = narrowed.model_copy(update={"wall_time_s": self._limits.wall_time_s})
        self._pool.keep(kind, narrowed, tool=tool.name, minimum=minimum, maximum=maximum)

    async def wait_filled(self, *, timeout_s: float = FILL_TIMEOUT_S) -> None:
        """Wait until the minimum of each kind waits.

        Args:
            timeout_s: How long to wait, in seconds.

        Raises:
            EngineError: A container cannot be started; the pool goes on trying.
        """
        await self._pool.wait_filled(timeout_s=timeout_s)

    def stats(self) -> tuple[PoolStats, ...]:
        """Return how each kind fares, in the order in which they were asked for."""
        return self._pool.stats()
