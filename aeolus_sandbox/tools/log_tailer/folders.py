"""The folders of the host that a log tailer's container sees: held from the check until the guest has opened them."""

import os
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from aeolus_sandbox.capabilities import is_inside
from aeolus_sandbox.errors import LogPathRefused
from aeolus_sandbox.profiles import Mount
from aeolus_sandbox.tools.log_tailer.replies import MountIdentity

MOUNT_ROOT: Final = "/host"
"""Where the folders are mounted in the container, each under its own path."""
_OPEN: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PinnedFolder:
    """A folder that is held by a descriptor: while it is, no other folder can have its device and inode."""

    def __init__(self, path: str) -> None:
        """Open a folder, step by step and following no link.

        Raises:
            OSError: It is not there, or a link is on its way.
        """
        self.path = path
        self._descriptor = _opened(path)
        self._closing = weakref.finalize(self, os.close, self._descriptor)
        status = os.fstat(self._descriptor)
        self.identity = (status.st_dev, status.st_ino)
        self._changed_ns = status.st_ctime_ns

    def is_shown_as(self, seen: MountIdentity, *, by_number: bool) -> bool:
        """Return whether what the guest sees is this folder.

        Args:
            seen: What the guest says of it.
            by_number: Whether the guest's kernel has the host's devices and inodes.
        """
        if by_number:
            return (seen.device, seen.inode) == self.identity
        # Boundary: gVisor numbers devices and inodes itself. What it passes on is the time of the last change, to the
        # nanosecond, which nobody can set: it must be that of the folder that was checked, or lie in the moment since,
        # where that one was changed in it. Owner and permissions must be the same, and the name must still lead here.
        # What is left: another folder of the same owner and permissions that was changed within that very moment.
        now = os.fstat(self._descriptor)
        has_same_owner = (seen.mode, seen.owner, seen.group) == (now.st_mode, now.st_uid, now.st_gid)
        return (
            has_same_owner
            and self._changed_ns <= seen.changed_ns <= now.st_ctime_ns
            and self._is_at_its_name()
        )

    def _is_at_its_name(self) -> bool:
        try:
            descriptor = _opened(self.path)
        except OSError:
            return False
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return (status.st_dev, status.st_ino) == self.identity

    @property
    def mount_id(self) -> str | None:
        """Which mount of the host it is on; None: nobody tells (proc_pid_fdinfo(5))."""
        try:
            lines = Path(f"/proc/self/fdinfo/{self._descriptor}").read_text().splitlines()
        except OSError:
            return None
        return next((line.split()[1] for line in lines if line.startswith("mnt_id:")), None)

    def close(self) -> None:
        """Let go of it; may be called again."""
        self._closing()


class LogFolders:
    """All folders of one container."""

    def __init__(self, folders: Sequence[PinnedFolder]) -> None:
        self._folders = folders

    @property
    def paths(self) -> list[str]:
        """The folders, by the host's names."""
        return [folder.path for folder in self._folders]

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """How they are mounted."""
        return tuple(Mount(source=path, target=f"{MOUNT_ROOT}{path}") for path in self.paths)

    def check_opened(self, seen: Iterable[MountIdentity], *, by_number: bool = True) -> None:
        """Check that the guest sees the very folders that were checked; see `PinnedFolder.is_shown_as`.

        Raises:
            LogPathRefused: A folder was replaced after the check.
        """
        # Boundary: the engine mounts by name, and a name can lead elsewhere by then.
        found = {mount.path: mount for mount in seen}
        for folder in self._folders:
            mount = found.get(folder.path)
            if mount is None or not folder.is_shown_as(mount, by_number=by_number):
                msg = f"{folder.path!r} was replaced after it was checked, or the container does not see it as it is"
                raise LogPathRefused(msg)

    def close(self) -> None:
        """Let go of the folders; may be called again."""
        for folder in self._folders:
            folder.close()


def pinned(paths: Iterable[str]) -> LogFolders:
    """Hold these folders, each once; one inside another is seen with it, unless another file system is mounted there.

    Raises:
        LogPathRefused: A folder is not what it was a moment ago.
    """
    kept: list[PinnedFolder] = []
    try:
        for path in sorted(set(paths), key=len):
            folder = PinnedFolder(path)
            if any(_shows(outer, folder) for outer in kept):
                folder.close()
            else:
                kept.append(folder)
    except OSError as error:
        LogFolders(kept).close()
        msg = f"{error.filename!r} was replaced while it was checked, or may not be opened: {error.strerror}"
        raise LogPathRefused(msg) from error
    return LogFolders(kept)


def _shows(outer: PinnedFolder, inner: PinnedFolder) -> bool:
    if not is_inside(inner.path, outer.path):
        return False
    return outer.mount_id is not None and outer.mount_id == inner.mount_id


def _opened(path: str) -> int:
    descriptor = os.open("/", _OPEN)
    for name in path.split("/")[1:]:
        try:
            below = os.open(name, _OPEN, dir_fd=descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor
