"""The session manager: the only front door, and the only place that picks an engine."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self, overload

from pydantic import ValidationError

from aeolus_sandbox.approvers.desk import ApprovalDesk
from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.capabilities import SANDBOXED, Grants, require
from aeolus_sandbox.engine.base import Engine
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.errors import (
    CapabilityDenied,
    CheckpointConflict,
    ConfigurationError,
    EngineError,
    QuotaExceeded,
    SessionClosed,
)
from aeolus_sandbox.idempotency import IdempotentRuns, Replay, Run
from aeolus_sandbox.identifiers import new_identifier
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.model.anthropic import AnthropicModels
from aeolus_sandbox.sandboxes.context import SandboxContext
from aeolus_sandbox.sandboxes.host import SandboxHost
from aeolus_sandbox.sandboxes.kept import IDLE_S, LIFETIME_S, MAX_KEPT
from aeolus_sandbox.sandboxes.kept_sessions import KeptSessions
from aeolus_sandbox.sandboxes.pool_settings import PoolSettings
from aeolus_sandbox.sandboxes.reaper import Reaped
from aeolus_sandbox.sandboxes.warm_pool import WarmPool
from aeolus_sandbox.storage.approvals import ApprovalStore
from aeolus_sandbox.storage.checkpoints import Checkpoints
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.location import default_state_path
from aeolus_sandbox.streaming.approval import Approver
from aeolus_sandbox.streaming.chunks import C, SummaryChunk
from aeolus_sandbox.streaming.filters import Filter
from aeolus_sandbox.streaming.policies import Policy, Summarise
from aeolus_sandbox.streaming.services import SessionServices
from aeolus_sandbox.streaming.session import StreamingToolSession
from aeolus_sandbox.streaming.text_model import TextModel
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
        kept_lifetime_s: float = LIFETIME_S,
        max_kept: int = MAX_KEPT,
        filters: Sequence[Filter] = (),
        approver: Approver | None = None,
        text_model: Callable[[str], TextModel] | None = None,
        state_path: Path | None = None,
        pool: PoolSettings | None = None,
    ) -> None:
        """Configure a manager; nothing is connected before a container is needed.

        Args:
            grants: What its tools may do; by default what touches nothing of the host.
            limits: What a session may use at most; a call can narrow them.
            max_sessions: How many sessions may be open at once.
            engine: The engine to use, which stays the caller's to close; None: Docker.
            docker_host: Address of Docker; None: `DOCKER_HOST`, else the local socket.
            kept_idle_s: How long a kernel that no session uses is kept, in seconds.
            kept_lifetime_s: How long a kernel is kept at most, used or not, in seconds; what runs then runs to its end.
            max_kept: How many kernels are kept; beyond it, the one that was not used for longest goes.
            filters: What is taken out of the text of every session, before its policy's own filters.
            approver: Who decides for `Manual`; None: only `aeolus approvals`, in another process.
            text_model: Gives the language model that `Summarise` names; None: Anthropic's, with the key of the
                environment.
            state_path: The file that keeps checkpoints and approvals, made when it is first needed; None:
                `AEOLUS_STATE`, else the user's state folder.
            pool: How the containers that wait are looked after; None: as usual. None wait before `pool.keep` asks
                for them.
        """
        self.grants = grants
        self.limits = limits or Limits()
        self.max_sessions = max_sessions
        self.filters = tuple(filters)
        used_engine = engine or DockerEngine(docker_host)
        self._own_engine = used_engine if engine is None else None
        self._tasks = BackgroundTasks()
        self._shutdown = BackgroundTasks()
        state_path = state_path or default_state_path()
        self._host = SandboxHost(
            used_engine,
            tasks=self._tasks,
            kept_idle_s=kept_idle_s,
            kept_lifetime_s=kept_lifetime_s,
            max_kept=max_kept,
            locks=state_path.parent / "builds",
            pool=pool or PoolSettings(),
        )
        self._database = Database(state_path)
        self._runs = IdempotentRuns(
            Checkpoints(self._database),
            owner=self._host.owner,
            tasks=self._tasks,
            remove_containers=self._host.remove_run,
        )
        self._models = AnthropicModels()
        self._services = SessionServices(
            tasks=self._tasks,
            text_model=text_model or self._models.text_model,
            approvals=ApprovalDesk(ApprovalStore(self._database), approver, owner=self._host.owner),
        )
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
    def kept(self) -> KeptSessions:
        """What is kept between calls of one `session_id`: to list, restart and close."""
        return KeptSessions(self._host.kept)

    @property
    def pool(self) -> WarmPool:
        """The containers that wait, started ahead, for sessions that are still to come."""
        return WarmPool(self._host.pool, limits=self.limits, grants=self.grants)

    @property
    def open_sessions(self) -> list[StreamingToolSession[Any, Any]]:
        """The sessions that have not ended, oldest first."""
        return list(self._sessions.values())

    @overload
    async def open(
        self,
        tool: StreamingTool[I, C, F],
        tool_input: I,
        *,
        policy: Summarise,
        limits: Limits | None = None,
        grants: Grants | None = None,
        idempotency_key: str | None = None,
    ) -> StreamingToolSession[C | SummaryChunk, F]: ...

    @overload
    async def open(
        self,
        tool: StreamingTool[I, C, F],
        tool_input: I,
        *,
        policy: Policy | None = None,
        limits: Limits | None = None,
        grants: Grants | None = None,
        idempotency_key: str | None = None,
    ) -> StreamingToolSession[C, F]: ...

    async def open(
        self,
        tool: StreamingTool[I, C, F],
        tool_input: I,
        *,
        policy: Policy | None = None,
        limits: Limits | None = None,
        grants: Grants | None = None,
        idempotency_key: str | None = None,
    ) -> StreamingToolSession[Any, F]:
        """Start a tool and return its session.

        With an idempotency key, the run is recorded before anything starts, and its result when it is there. The same
        key again gives the stored result, and nothing runs. Where an earlier run began and never ended (its process
        died), an idempotent tool runs again after what was left of it is removed, and any other is refused.

        Args:
            tool: The tool.
            tool_input: What the session is configured with.
            policy: How the output reaches the reader; None: the tool's own.
            limits: Limits to narrow for this session; fields that are not set stay as they are.
            grants: Grants to narrow for this session; they are never widened.
            idempotency_key: Names the run; None: a new key for an idempotent tool (`session.idempotency_key`), and no
                record for any other.

        Raises:
            CapabilityDenied: The tool requires what was not granted; nothing has happened.
            ConfigurationError: The input, the policy, the key or a limit is wrong; nothing has happened.
            QuotaExceeded: `max_sessions` sessions are open.
            CheckpointConflict: The key belongs to another tool or input.
            CheckpointBusy: Another run with this key goes on, and did not end within this one's wall time.
            RunInterrupted: A run with this key began, never ended, and must not be repeated.
            StorageError: The run cannot be recorded; nothing has started.
            EngineError: No container could be started; nothing is left.
            SessionClosed: The manager is closed.
        """
        granted = self.grants if grants is None else self.grants.narrowed_to(grants)
        for required in tool.requires(tool_input):
            require(tool.name, required, granted)
        policy = policy or tool.policy
        policy.check(self._services.text_model)
        _check_waits(tool, policy)
        narrowed = self.limits.narrowed_by(limits).within(timeout_s=tool.timeout_s(tool_input))
        self._check_open()
        self._check_quota()
        self._opening += 1
        try:
            record = await self._record(tool, tool_input, idempotency_key, narrowed)
            context = self._host.context(
                uuid.uuid4().hex,
                limits=narrowed,
                isolation=tool.isolation,
                namespace=tool.name,
                filters=(*self.filters, *policy.filters),
                idempotency_key=None if record is None else record.key,
                progress=None if record is None else record.progress,
                log_access=granted.log_access,
                may_pause_s=policy.may_pause_s,
            )
            handle = await self._start(tool, tool_input, context, record)
        finally:
            self._opening -= 1
        return self._session(tool, handle, context, policy, record)

    async def reap(self) -> Reaped:
        """Remove the containers of owners that are gone, and say which.

        Raises:
            EngineError: The engine does not list its containers.
        """
        return await self._host.reap()

    async def aclose(self) -> None:
        """End all sessions and remove all containers of this manager; without effect the second time.

        Raises:
            EngineError: Containers are left; a guard process goes on trying to remove them.
        """
        if not self._closed:
            self._closed = True
            await self._shutdown.run(self._shut_down(), name="shut down")

    async def _record(
        self, tool: StreamingTool[I, C, F], tool_input: I, key: str | None, limits: Limits
    ) -> Run | Replay | None:
        """Record the run, where it has a key or the tool is idempotent."""
        if key is None and not tool.idempotent:
            return None
        return await self._runs.begin(
            new_identifier() if key is None else key,
            tool_name=tool.name,
            tool_input=tool_input,
            may_repeat=tool.idempotent,
            has_containers=tool.isolation.uses_containers,
            wait_s=limits.wall_time_s,
        )

    async def _start(
        self,
        tool: StreamingTool[I, C, F],
        tool_input: I,
        context: SandboxContext,
        record: Run | Replay | None,
    ) -> StreamingToolHandle[C, F]:
        try:
            self._check_open()
            if isinstance(record, Replay):
                return _replayed(tool, record)
            handle = await tool.start(tool_input, context)
            self._check_open()
        except BaseException as error:
            # In the background: a caller who is cancelled must not wait, and must not interrupt it either.
            self._tasks.start(self._host.release(context), name=f"abandon session {context.session_id}")
            if isinstance(record, Run):
                nothing_started = isinstance(error, ConfigurationError | CapabilityDenied | EngineError)
                end = record.forget() if nothing_started else record.give_up()
                self._tasks.start(end, name=f"give up the run {record.key}")
            raise
        return handle

    def _session(
        self,
        tool: StreamingTool[I, C, F],
        handle: StreamingToolHandle[C, F],
        context: SandboxContext,
        policy: Policy,
        record: Run | Replay | None,
    ) -> StreamingToolSession[C, F]:
        async def release() -> None:
            self._sessions.pop(context.session_id, None)
            await self._host.release(context)

        session = StreamingToolSession(
            handle,
            session_id=context.session_id,
            tool_name=tool.name,
            policy=policy,
            filters=context.filters,
            codec=tool.codec(),
            limits=context.limits,
            services=self._services,
            release=release,
            record=record,
        )
        self._sessions[context.session_id] = session
        return session

    async def _shut_down(self) -> None:
        self._host.pool.stop()
        async with asyncio.TaskGroup() as group:
            for session in self.open_sessions:
                group.create_task(session.aclose())
        self._runs.close()
        try:
            await self._host.aclose()
        finally:
            await self._models.aclose()
            await self._database.aclose()
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


def _check_waits(tool: StreamingTool[Any, Any, Any], policy: Policy) -> None:
    if policy.waits_at is not None and not tool.can_wait:
        msg = f"the tool {tool.name!r} cannot wait for its reader: take a Window without wait_for_reader"
        raise ConfigurationError(msg)


def _replayed(tool: StreamingTool[I, C, F], replay: Replay) -> StreamingToolHandle[C, F]:
    """Return a handle that streams nothing and ends with a stored result.

    Raises:
        CheckpointConflict: The result does not fit this version of the tool.
    """
    try:
        final = tool.Final.model_validate_json(replay.final)
    except ValidationError as error:
        msg = f"the result stored under {replay.key!r} is not one of this version of the tool {tool.name!r}: use a new key"
        raise CheckpointConflict(msg) from error

    async def chunks() -> AsyncIterator[C]:
        return
        yield

    async def result() -> F:
        return final

    return StreamingToolHandle(chunks=chunks(), finalize=result())
