"""What we ask of a container engine, and the pure data that describes a container.

`testing.engine_suite` holds every engine to these promises.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NewType, Protocol

from pydantic import BaseModel, ConfigDict

from aeolus_sandbox.pieces import Piece

ContainerId = NewType("ContainerId", str)

OWNER_LABEL = "aeolus.owner"
SESSION_LABEL = "aeolus.session"
DEADLINE_LABEL = "aeolus.deadline"
IDEMPOTENCY_LABEL = "aeolus.idempotency_key"


class Tmpfs(BaseModel):
    """A sized file system in memory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    size_bytes: int
    mode: int
    executable: bool = True


class ReadOnlyMount(BaseModel):
    """A folder of the host that the container sees read-only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    target: str


class ContainerSpec(BaseModel):
    """How a container must be made: pure data, made by `hardening.container_spec`, translated by an engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    working_dir: str
    user: str
    tty: bool
    labels: Mapping[str, str]
    memory_bytes: int
    cpus: float
    pids: int
    open_files: int
    file_bytes: int
    tmpfs: tuple[Tmpfs, ...]
    mounts: tuple[ReadOnlyMount, ...] = ()
    groups: tuple[int, ...] = ()
    """Supplementary groups of the user."""
    read_only_root: bool = True
    dropped_capabilities: tuple[str, ...] = ("ALL",)
    no_new_privileges: bool = True
    seccomp: str | None
    """The seccomp profile as JSON text; None: the engine's default."""
    network: Literal["none", "empty"] = "none"
    """`none`: no network, and files of the engine's that name localhost. `empty`: none either, in a namespace that the
    runtime makes without the engine, which takes half of a start; what is named is for the image to say."""
    runtime: str | None = None
    """The engine's runtime; None: its default."""


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """How a container ended."""

    code: int
    out_of_memory: bool
    """Whether the kernel killed a process of it for memory at any time."""


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """One container of ours, as the engine lists it."""

    id: ContainerId
    labels: Mapping[str, str]
    state: str


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine says of itself."""

    name: str
    version: str
    api_version: str
    address: str
    cgroup_version: str
    storage_driver: str
    security_options: tuple[str, ...]
    runtimes: tuple[str, ...]
    default_runtime: str
    warnings: tuple[str, ...]


class AttachStream(Protocol):
    """The two pipes that join host and container; one reader and one writer at a time."""

    async def read(self) -> Sequence[Piece]:
        """Return what has arrived since the last call, waiting for something; empty at the end of output.

        Cancelling the call loses nothing.

        Raises:
            EngineError: The stream was cut or is corrupt.
        """
        ...

    async def write(self, data: bytes) -> None:
        """Write to the container's stdin, waiting while it does not read.

        Raises:
            SessionClosed: The stream is closed.
        """
        ...

    def write_eof(self) -> None:
        """End the container's stdin; its output still arrives."""
        ...

    async def aclose(self) -> None:
        """Close both directions; never raises, and may be called again."""
        ...


class EngineContainer(Protocol):
    """One started container with its attached stream."""

    @property
    def id(self) -> ContainerId:
        """The engine's id of it."""
        ...

    @property
    def stream(self) -> AttachStream:
        """What joins us to it; attached before it was started, so that no output is lost."""
        ...

    async def wait_exit(self) -> ContainerExit:
        """Wait for its end, without a time limit, and return how it ended.

        Raises:
            EngineUnavailable: The connection to the engine was lost.
            EngineError: The engine does not know it any more.
        """
        ...

    async def signal(self, name: str) -> None:
        """Send a signal (`SIGTERM`) to its first process; without effect when it has ended."""
        ...

    async def signal_foreground(self, name: str) -> None:
        """Send a signal to the foreground process group of its terminal; without effect when it has ended."""
        ...

    async def resize(self, *, cols: int, rows: int) -> None:
        """Set the terminal's size; without effect when it has ended."""
        ...

    async def kill(self) -> None:
        """Kill every process of it; without effect when it has ended."""
        ...

    async def aclose(self) -> None:
        """Close the stream, kill it if need be, and remove it.

        Raises:
            EngineError: It could not be removed and is still there.
        """
        ...


class Engine(Protocol):
    """A container engine; every call but `wait_exit` has a time limit of the engine's own."""

    @property
    def address(self) -> str | None:
        """Where another process can reach it; None: it lives in this process only.

        Raises:
            EngineUnavailable: There is no engine.
        """
        ...

    async def launch(self, spec: ContainerSpec) -> EngineContainer:
        """Create, attach to and start a container; nothing is left when it fails or is cancelled.

        Raises:
            EngineUnavailable: No engine answers.
            ImageNotFound: The image is not there.
            RuntimeMissing: It has no runtime of that name; no other one takes its place.
            ShellMissing: The image has no program of the name `argv[0]`.
            LaunchFailed: The engine refused.
        """
        ...

    async def list_containers(self, labels: Mapping[str, str | None]) -> list[ContainerInfo]:
        """Return all containers, in any state, that have these labels (None: any value)."""
        ...

    async def remove_container(self, container: ContainerId) -> None:
        """Kill and remove a container; without effect when it is gone.

        Raises:
            EngineError: It is still there.
        """
        ...

    async def info(self) -> EngineInfo:
        """Return what the engine says of itself.

        Raises:
            EngineUnavailable: No engine answers.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections; containers are left alone."""
        ...
