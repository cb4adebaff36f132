"""The session manager: the only front door, and the only place that picks an engine."""

import asyncio
import logging
import uuid
from typing import Any, Final, Self

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.capabilities import SANDBOXED, Grants, require
from aeolus_sandbox.engine.base import Engine
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.errors import EngineError, QuotaExceeded, SessionClosed
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.sandboxes.context import SandboxContext
from aeolus_sandbox.sandboxes.host import SandboxHost
from aeolus_sandbox.sandboxes.kept import IDLE_S, MAX_KEPT
from aeolus_sandbox.sandboxes.reaper import Reaped
from aeolus_sandbox.streaming.chunks import C
from aeolus_sandbox.streaming.policies import Policy
from aeolus_sandbox.streaming.session import StreamingToolSession
from aeolus_sandbox.streaming.tool import F, I, StreamingTool, StreamingToolHandle

_logger = logging.getLogger(__name__)

MAX_SESSIONS: Final = 32
"""How many sessions a manager has open at once by default."""


class SessionManager:
    """Opens sessions: checks what is granted, sets the limits, starts the tool, and leaves no container behind.

    Use it as an async context manager. Leaving it ends all its sessions.
    """

    def __init__(
        self,
        *,
        grants: Grants = SANDBOXED,
        limits: Limits | None = None,
        max_sessions: int = MAX_SESSIONS,
        engine: Engine | None = None,
        docker_host: str | None = None,
        kept_idle_s: float = IDLE_S,
        max_kept: int = MAX_KEPT,
    ) -> None:
        """Configure a manager; nothing is connected before a container is needed.

        Args:
            grants: What its tools may do; by default what touches nothing of the host.
            limits: What a session may use at most; a call can narrow them.
            max_sessions: How many sessions may be open at once.
            engine: The engine to use, which stays the caller's to close; None: Docker.
            docker_host: Address of Docker; None: `DOCKER_HOST`, else the local socket.
            kept_idle_s: How long a kernel that no session uses is kept, in seconds.
            max_kept: How many kernels are kept; beyond it, the one that was not used for longest goes.
        """
        self.grants = grants
        self.limits = limits or Limits()
        self.max_sessions = max_sessions
        used_engine = engine or DockerEngine(docker_host)
        self._own_engine = used_engine if engine is None else None
        self._tasks = BackgroundTasks()
        self._shutdown = BackgroundTasks()
        self._host = SandboxHost(used_engine, tasks=self._tasks, kept_idle_s=kept_idle_s, max_kept=max_kept)
        self._sessions: dict[str, StreamingToolSession[Any, Any]] = {}
        self._opening = 0
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        try:
            await self.aclose()
        except EngineError as error:
            if exc_type is None:
                raise
            _logger.warning("%s", error)  # it must not hide what went wrong before it

    @property
    def owner(self) -> str:
        """The label of this manager's containers."""
        return self._host.owner

    @property
    def open_sessions(self) -> list[StreamingToolSession[Any, Any]]:
        """The sessions that have not ended, oldest first."""
        return list(self._sessions.values())

    async def open(
        self,
        tool: StreamingTool[I, C, F],
        tool_input: I,
        *,
        limits: Limits | None = None,
        policy: Policy | None = None,
        grants: Grants | None = None,
    ) -> StreamingToolSession[C, F]:
        """Start a tool and return its session.

        Args:
            tool: The tool.
            tool_input: What the session is configured with.
            limits: Limits to narrow for this session; fields that are not set stay as they are.
            policy: How the output reaches the reader; None: the tool's own.
            grants: Grants to narrow for this session; they are never widened.

        Raises:
            CapabilityDenied: The tool requires what was not granted; nothing has happened.
            ConfigurationError: The input or a limit is wrong; nothing has happened.
            QuotaExceeded: `max_sessions` sessions are open.
            EngineError: No container could be started; nothing is left.
            SessionClosed: The manager is closed.
        """
        granted = self.grants if grants is None else self.grants.narrowed_to(grants.kinds)
        require(tool.name, tool.required_capability, granted)
        narrowed = self.limits.narrowed_by(limits).within(timeout_s=tool.timeout_s(tool_input))
        self._check_open()
        self._check_quota()
        context = self._host.context(
            uuid.uuid4().hex, limits=narrowed, isolation=tool.isolation, namespace=tool.name
        )
        self._opening += 1
        try:
            handle = await tool.start(tool_input, context)
            self._check_open()
        except BaseException:
            # In the background: a caller who is cancelled must not wait, and must not interrupt it either.
            self._tasks.start(self._host.release(context), name=f"abandon session {context.session_id}")
            raise
        finally:
            self._opening -= 1
        return self._session(tool, handle, context, policy or tool.policy)

    async def reap(self) -> Reaped:
        """Remove the containers of owners that are gone, and say which.

        Raises:
            EngineError: The engine does not list its containers.
        """
        return await self._host.reap()

    async def drop_kept(self, tool: StreamingTool[Any, Any, Any], session_id: str) -> None:
        """Remove what a tool has kept under a session id, once nobody uses it.

        Raises:
            EngineError: Its container could not be removed.
        """
        await self._host.kept.drop(f"{tool.name}:{session_id}")

    async def aclose(self) -> None:
        """End all sessions and remove all containers of this manager; without effect the second time.

        Raises:
            EngineError: Containers are left; a guard process goes on trying to remove them.
        """
        if not self._closed:
            self._closed = True
            await self._shutdown.run(self._shut_down(), name="shut down")

    def _session(
        self,
        tool: StreamingTool[I, C, F],
        handle: StreamingToolHandle[C, F],
        context: SandboxContext,
        policy: Policy,
    ) -> StreamingToolSession[C, F]:
        async def release() -> None:
            self._sessions.pop(context.session_id, None)
            await self._host.release(context)

        session = StreamingToolSession(
            handle,
            session_id=context.session_id,
            policy=policy,
            codec=tool.codec(),
            limits=context.limits,
            tasks=self._tasks,
            release=release,
        )
        self._sessions[context.session_id] = session
        return session

    async def _shut_down(self) -> None:
        async with asyncio.TaskGroup() as group:
            for session in self.open_sessions:
                group.create_task(session.aclose())
        try:
            await self._host.aclose()
        finally:
            if self._own_engine is not None:
                await self._own_engine.aclose()

    def _check_open(self) -> None:
        if self._closed:
            msg = "the session manager is closed"
            raise SessionClosed(msg)

    def _check_quota(self) -> None:
        if len(self._sessions) + self._opening >= self.max_sessions:
            msg = f"{self.max_sessions} sessions are open, and no more are allowed at once: close one, or raise max_sessions"
            raise QuotaExceeded(msg)
