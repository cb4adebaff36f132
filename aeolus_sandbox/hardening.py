"""From what a tool asks for and what it may use to how its container is made: pure, and snapshot-tested.

Boundary: every barrier around untrusted code that the engine enforces is decided here and nowhere else.
"""

from collections.abc import Mapping
from typing import Final

from aeolus_sandbox.capabilities import is_inside
from aeolus_sandbox.engine.base import ContainerSpec, ReadOnlyMount, Tmpfs
from aeolus_sandbox.engine.image_catalog import REPOSITORY_PREFIX
from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.profiles import Mount, SandboxProfile
from aeolus_sandbox.streaming.tool import IsolationMode

SANDBOX_USER: Final = "10001:10001"
"""User and group in every container: nobody's on the host, and not root's in any image."""
WORKSPACE: Final = "/workspace"
GVISOR_RUNTIME: Final = "runsc"
"""The name under which an engine knows gVisor."""

_ENVIRONMENT: Final = {"HOME": WORKSPACE, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108 - a tmpfs of its own
_FORBIDDEN_SOURCES: Final = ("/", "/etc", "/boot", "/root")
_FORBIDDEN_TREES: Final = ("/proc", "/sys", "/dev", "/run", "/var/run")
_GVISOR_THREADS: Final = 128
"""How many threads of the host gVisor's kernel takes at most for itself (90 were seen)."""
_GVISOR_THREADS_PER_PROCESS: Final = 10
"""How many it takes for each process that it runs on the platform ptrace (8 were seen)."""
_NO_GROUP: Final = 2**32 - 1


def container_spec(
    profile: SandboxProfile,
    *,
    image: str,
    argv: tuple[str, ...],
    limits: Limits,
    labels: Mapping[str, str],
    seccomp: str,
    isolation: IsolationMode = IsolationMode.CONTAINER,
) -> ContainerSpec:
    """Return the specification of a hardened container.

    Args:
        profile: What the tool asks for.
        image: The reference of the profile's image.
        argv: What the container starts with.
        limits: What it may use.
        labels: Whose it is.
        seccomp: The seccomp profile, as JSON text.
        isolation: Which kernel it runs on.

    Raises:
        ConfigurationError: The profile mounts what must not be mounted, or the isolation knows no containers.
    """
    terminal = {"TERM": "xterm-256color"} if profile.tty else {}
    return ContainerSpec(
        image=image,
        argv=argv,
        env=_ENVIRONMENT | terminal,
        working_dir=WORKSPACE,
        user=SANDBOX_USER,
        tty=profile.tty,
        labels=dict(labels),
        memory_bytes=limits.memory_bytes,
        cpus=limits.cpus,
        pids=_pids(limits.pids, isolation),
        open_files=limits.open_files,
        file_bytes=limits.disk_bytes,
        tmpfs=(
            Tmpfs(path="/tmp", size_bytes=limits.tmp_bytes, mode=0o1777),  # noqa: S108 - a tmpfs of its own
            Tmpfs(path=WORKSPACE, size_bytes=limits.disk_bytes, mode=0o700),
        ),
        mounts=tuple(_checked_mount(mount) for mount in profile.mounts),
        groups=tuple(_checked_group(group) for group in profile.groups),
        # Our own images name localhost themselves; another one may leave that to the engine.
        network="empty" if image.startswith(REPOSITORY_PREFIX) else "none",
        seccomp=seccomp,
        runtime=_runtime(isolation),
    )


def is_mountable(folder: str) -> bool:
    """Return whether a folder of the host, by an absolute, normal path, may be shown to a container at all."""
    is_normal = folder.startswith("/") and not {"", ".", ".."} & set(folder.split("/")[1:])
    is_forbidden = any(is_inside(folder, tree) for tree in _FORBIDDEN_TREES)
    return is_normal and not is_forbidden and folder not in _FORBIDDEN_SOURCES


def _runtime(isolation: IsolationMode) -> str | None:
    # Boundary: who asked for a kernel of its own gets it or an error, and never the engine's default instead.
    match isolation:
        case IsolationMode.CONTAINER:
            return None
        case IsolationMode.GVISOR:
            return GVISOR_RUNTIME
        case IsolationMode.IN_PROCESS:
            msg = "a tool whose isolation is in_process has no container"
            raise ConfigurationError(msg)


def _pids(pids: int, isolation: IsolationMode) -> int:
    # The engine counts threads of the host. gVisor ends with the whole container where it gets no more of them.
    if isolation is IsolationMode.GVISOR:
        return _GVISOR_THREADS + _GVISOR_THREADS_PER_PROCESS * pids
    return pids


def _checked_group(group: int) -> int:
    # Boundary: root's group can write to much of an image, and of a host.
    if not 0 < group < _NO_GROUP:
        msg = f"{group!r} cannot be a group of a sandbox: give a number from 1 to {_NO_GROUP - 1}"
        raise ConfigurationError(msg)
    return group


def _checked_mount(mount: Mount) -> ReadOnlyMount:
    # Boundary: the engine runs as root and would mount anything; a socket or a device folder is a way out.
    source = mount.source.rstrip("/") or "/"
    if not is_mountable(source):
        msg = f"{mount.source!r} cannot be mounted: give an absolute, normal path of a folder with data"
        raise ConfigurationError(msg)
    if source.endswith(".sock"):
        msg = f"{mount.source!r} looks like a socket, and a socket is a way out of the sandbox"
        raise ConfigurationError(msg)
    if not mount.target.startswith("/") or ".." in mount.target.split("/"):
        msg = f"{mount.target!r} is not an absolute, normal path to mount at"
        raise ConfigurationError(msg)
    return ReadOnlyMount(source=source, target=mount.target)
