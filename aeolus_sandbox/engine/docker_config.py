"""From a `ContainerSpec` to the body of Docker's create call: pure, and snapshot-tested.

Fields: https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerCreate
"""

from typing import Any

from aeolus_sandbox.engine.base import ContainerSpec, ReadOnlyMount, Tmpfs

_OOM_SCORE_ADJ = 500
"""When the host itself runs out of memory, sandboxes go before everything else."""


def container_config(spec: ContainerSpec) -> dict[str, Any]:
    """Return the body of the create call for a container of this specification."""
    return {
        "Image": spec.image,
        "Cmd": list(spec.argv),
        "Entrypoint": [],  # an image's own entry point would run before ours
        "Env": [f"{name}={value}" for name, value in sorted(spec.env.items())],
        "WorkingDir": spec.working_dir,
        "User": spec.user,
        "Hostname": "sandbox",
        "Labels": dict(spec.labels),
        "Tty": spec.tty,
        # Docker then leaves the namespace to the runtime, which makes an empty one (daemon/oci_linux.go, its default
        # specification), and starts no programs of its own to fill it.
        "NetworkDisabled": spec.network == "empty",
        "OpenStdin": True,
        # The container's stdin ends when the attached client goes away: a container without a TTY then ends by itself.
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": _host_config(spec),
    }


def _host_config(spec: ContainerSpec) -> dict[str, Any]:
    return {
        "Init": True,  # reaps zombies, passes signals on, and makes a stop immediate
        "NetworkMode": "none",  # Boundary: also for an engine that does not know `NetworkDisabled`
        "IpcMode": "private",
        "LogConfig": {"Type": "none"},  # any other driver writes all output to the host's disk
        "ReadonlyRootfs": spec.read_only_root,
        "CapDrop": list(spec.dropped_capabilities),
        "SecurityOpt": _security_options(spec),
        "Memory": spec.memory_bytes,
        "MemorySwap": spec.memory_bytes,  # equal: no swap
        "NanoCpus": round(spec.cpus * 1_000_000_000),
        "PidsLimit": spec.pids,
        "OomScoreAdj": _OOM_SCORE_ADJ,
        "ShmSize": 16 * 1024 * 1024,
        "Ulimits": [
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "nofile", "Soft": spec.open_files, "Hard": spec.open_files},
            {"Name": "fsize", "Soft": spec.file_bytes, "Hard": spec.file_bytes},
        ],
        "Tmpfs": {tmpfs.path: _tmpfs_options(tmpfs, spec.user) for tmpfs in spec.tmpfs},
        "GroupAdd": [str(group) for group in spec.groups],
        "Mounts": [_bind(mount) for mount in spec.mounts],
        **({} if spec.runtime is None else {"Runtime": spec.runtime}),
    }


def _bind(mount: ReadOnlyMount) -> dict[str, Any]:
    # Read-only does not reach the file systems that are mounted below the folder: without NonRecursive they would be
    # there, and writable (https://docs.docker.com/engine/storage/bind-mounts/#recursive-mounts).
    options = {"Propagation": "rprivate", "NonRecursive": True}
    return {
        "Type": "bind",
        "Source": mount.source,
        "Target": mount.target,
        "ReadOnly": True,
        "BindOptions": options,
    }


def _security_options(spec: ContainerSpec) -> list[str]:
    options = ["no-new-privileges"] if spec.no_new_privileges else []
    if spec.seccomp is not None:
        options.append(f"seccomp={spec.seccomp}")
    return options


def _tmpfs_options(tmpfs: Tmpfs, user: str) -> str:
    uid, _, gid = user.partition(":")
    execution = "exec" if tmpfs.executable else "noexec"
    return (
        f"rw,nosuid,nodev,{execution},size={tmpfs.size_bytes},mode={tmpfs.mode:o},uid={uid},gid={gid or uid}"
    )
