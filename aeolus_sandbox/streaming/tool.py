"""What a streaming tool is: the class that its author writes, and the handle that starting it gives."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel

from aeolus_sandbox.capabilities import CapabilityKind, ReadLogs
from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.exit_status import Stop
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.profiles import SandboxProfile
from aeolus_sandbox.streaming.chunks import C, ChunkBatch, ChunkCodec, JsonCodec
from aeolus_sandbox.streaming.filters import TextFilter
from aeolus_sandbox.streaming.held_files import WorkspaceFiles
from aeolus_sandbox.streaming.policies import Buffer, Policy
from aeolus_sandbox.streaming.progress import Progress
from aeolus_sandbox.streaming.sandbox import ImagePreparation, Process, Sandbox
from aeolus_sandbox.streaming.stdin import StdinSender

I = TypeVar("I", bound=BaseModel)  # the input
F = TypeVar("F", bound=BaseModel)

PREPARATION_LIMIT_S: Final = 1000.0
"""How long a session's clock stands still for what must be made first; that has a limit of its own."""


class IsolationMode(StrEnum):
    """Where a tool's work runs."""

    IN_PROCESS = "in_process"
    """In the host process: for code of your own, never for untrusted code."""
    CONTAINER = "container"
    """In an ephemeral, hardened container, which shares the kernel of its host."""
    GVISOR = "gvisor"
    """In such a container on a kernel of its own: gVisor, as the engine's runtime `runsc`."""

    @property
    def uses_containers(self) -> bool:
        """Whether the work runs in a container, and not in the host process."""
        return self is not IsolationMode.IN_PROCESS


def in_container(isolation: IsolationMode, tool_name: str) -> IsolationMode:
    """Return an isolation if it is one of containers.

    Raises:
        ConfigurationError: It is not: this tool's work must never run in the host process.
    """
    if not isolation.uses_containers:
        msg = f"the tool {tool_name!r} runs in containers only: its isolation cannot be {isolation.value}"
        raise ConfigurationError(msg)
    return isolation


class CancelToken:
    """How a running tool is told to end; a tool waits for it, or gives a callback that ends its work."""

    def __init__(self, on_cancel: Callable[[Stop], Awaitable[None]] | None = None) -> None:
        self._on_cancel = on_cancel
        self._event = asyncio.Event()
        self.stop: Stop | None = None
        """Why it was cancelled, once it was."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the tool was told to end."""
        return self.stop is not None

    async def cancel(self, stop: Stop) -> None:
        """Tell the tool to end; the first reason counts, later calls do nothing."""
        if self.stop is not None:
            return
        self.stop = stop
        self._event.set()
        if self._on_cancel is not None:
            await self._on_cancel(stop)

    async def wait_cancelled(self) -> Stop:
        """Wait until the tool is told to end, and return why."""
        await self._event.wait()
        assert self.stop is not None
        return self.stop


@dataclass(slots=True)
class StreamingToolHandle(Generic[C, F]):
    """What `StreamingTool.start` returns: one running tool."""

    chunks: AsyncIterator[C | ChunkBatch]
    """The output; it ends when the tool has ended, and is always read to its end. Batches only where the tool's codec
    is a `BatchCodec`."""
    finalize: Awaitable[F]
    """Gives the result; awaited once, after the end of `chunks`."""
    stdin: StdinSender | None = None
    """Takes input for a bidirectional tool; None: the tool is read-only."""
    cancel: CancelToken = field(default_factory=CancelToken)
    """Ends the tool; `chunks` and `finalize` must then end soon."""
    prepared: asyncio.Event | None = None
    """Set, at the latest at the end of `chunks`, when the work itself begins: the session's clock stands still until
    then, at most `PREPARATION_LIMIT_S`. None: it begins at once."""
    files: WorkspaceFiles | None = None
    """Gives out files of the workspace once the tool has ended; None: there is nothing to fetch."""
    progress: Progress[C] | None = None
    """Says how far the reader has come, for another attempt at the run; None: another attempt begins anew."""


class ToolContext(Protocol):
    """What the manager gives to a tool that starts."""

    @property
    def session_id(self) -> str:
        """The session's id."""
        ...

    @property
    def limits(self) -> Limits:
        """The limits of this session."""
        ...

    @property
    def log_access(self) -> ReadLogs:
        """Which log files of the host the tool may read; by default none."""
        ...

    @property
    def progress(self) -> str | None:
        """How far an earlier attempt at this run came, as `StreamingToolHandle.progress` said it."""
        ...

    async def park(self, profile: SandboxProfile) -> Sandbox:
        """Return a parked container of this profile; it is removed when the session ends.

        Raises:
            ConfigurationError: The tool's isolation is `IN_PROCESS`, or the profile is wrong.
            EngineError: No container could be started.
        """
        ...

    async def run(self, profile: SandboxProfile) -> Process:
        """Start a container whose program is the profile's `argv`; it is removed when the session ends.

        Raises:
            ConfigurationError: The tool's isolation is `IN_PROCESS`, or the profile is wrong.
            EngineError: No container could be started.
        """
        ...

    def prepare_image(self, image: str, packages: Sequence[str]) -> ImagePreparation:
        """Return a shipped image with packages on top, by its name; it is built, once, where there is none yet."""
        ...

    def text_filter(self) -> TextFilter:
        """Return the session's filters at the beginning of a text.

        For a tool that keeps the gist of its output for its `Final`: what was cut cannot be filtered afterwards,
        because half a secret does not look like one.
        """
        ...

    async def keep(self, key: str, make: "Callable[[ToolContext], Awaitable[Kept]]") -> "Kept":
        """Return what an earlier session kept under this key, made by `make` where there is none.

        Called again with the same key, it gives the same, or another where it has turned out unusable.

        Waits while another session uses it. What `make` starts through the context that it is given lives on after
        this session, until the manager closes or it has not been used for a while.
        """
        ...

    def lend(self, key: str) -> AbstractAsyncContextManager["Kept"]:
        """Lend what is kept under a key and nothing else, also after this session; waits while another one uses it.

        Raises:
            SessionClosed: Nothing is kept under it any more.
        """
        ...


class Kept(Protocol):
    """Something that outlives a session, such as a kernel with its state."""

    @property
    def image(self) -> str:
        """The image of its container."""
        ...

    @property
    def language(self) -> str | None:
        """The language that it speaks, where there is one."""
        ...

    @property
    def is_usable(self) -> bool:
        """Whether the next session can use it, as far as is known."""
        ...

    async def wait_usable(self) -> bool:
        """Find out whether it still answers; called before it is lent again.

        It may leave the proof to its next request; its user then calls `keep` again where that fails.
        """
        ...

    def mark_recreated(self) -> None:
        """Note that it stands in the place of an earlier one of its key that was lost; called before it is lent."""
        ...


class StreamingTool(ABC, Generic[I, C, F]):
    """Base of all tools: give the names, the three models, and `start`."""

    name: ClassVar[str]
    """Stable name, in snake_case."""
    description: ClassVar[str]
    """What the tool does, in words for a person or a model."""
    Input: type[I]
    """What a session is configured with."""
    OutputChunk: type[C]
    """What it streams."""
    Final: type[F]
    """What it ends with."""
    policy: Policy = Buffer()
    """How the output reaches the reader, unless the caller says otherwise."""
    isolation: IsolationMode = IsolationMode.IN_PROCESS
    """Where the work runs."""
    idempotent: bool = False
    """Whether it may run again where nobody knows whether it ran; its result is then recorded, and stands for
    running it again with the same key (see `SessionManager.open`)."""
    required_capability: CapabilityKind | None = None
    """What must have been granted."""

    @abstractmethod
    async def start(self, tool_input: I, context: ToolContext) -> StreamingToolHandle[C, F]:
        """Start the tool and return its handle at once.

        Called by the manager after the capability check, once for each session.

        Raises:
            ConfigurationError: The input is wrong; nothing has started.
            EngineError: No container could be started; nothing is left.
        """

    @property
    def can_wait(self) -> bool:
        """Whether it may be kept waiting for a slow reader, as `Window(wait_for_reader=True)` does.

        A program in a container cannot, unless its tool takes care of that: while its output is not read, the engine
        can neither stop nor remove it (moby #41827).
        """
        return self.isolation is IsolationMode.IN_PROCESS

    def requires(self, tool_input: I) -> Sequence[CapabilityKind]:
        """Return all that must have been granted for this input."""
        return () if self.required_capability is None else (self.required_capability,)

    def profile(self, tool_input: I) -> SandboxProfile | None:
        """Return in what container a session of this input runs, so that one can wait for it in a pool.

        It must be what `start` gives to `ToolContext.park` or `run`. None: that is not known before, or there is none.
        """
        return None

    def timeout_s(self, tool_input: I) -> float | None:
        """Return the time limit that an input asks for; it can only shorten the session's wall time."""
        value = getattr(tool_input, "timeout_s", None)
        return float(value) if isinstance(value, int | float) else None

    def codec(self) -> ChunkCodec[Any]:
        """Return how the chunks lie in the spool; JSON lines suit every tool."""
        return JsonCodec(self.OutputChunk)
