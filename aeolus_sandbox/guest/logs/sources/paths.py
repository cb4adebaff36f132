"""Host paths, opened below the folder in which the host's folders are mounted, as if that were the root.

Every step is taken with `O_PATH | O_NOFOLLOW` relative to the folder before it, and symlinks are followed here, in the
host's terms (path_resolution(7)): what a link leads to is checked before it is opened, and a link that is put in a
folder's place between two steps is only another link to follow.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

MAX_LINKS: Final = 40
"""How many symlinks one path may lead through, as in the kernel."""
MAX_STEPS: Final = 4096
"""How many steps one path may take, those of its links included."""
_STEP: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: what is a FIFO by now must not wait for its writer.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MISSING: Final = (errno.ENOENT, errno.ENOTDIR)
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class RefusedPath(OSError):
    """The path leads outside the mounted paths, or to what is not a regular file."""


class FileKey(NamedTuple):
    """What a file is, whatever its name."""

    device: int
    inode: int


class Entry(NamedTuple):
    """One entry of a folder."""

    name: str
    inode: int
    is_folder: bool
    is_link: bool


class Located(NamedTuple):
    """Where a path leads to."""

    status: os.stat_result | None
    """What is there; None: nothing."""
    entries: tuple[tuple[str, str], ...]
    """The entries, as (folder, name), that decide it: each link on the way, and the last one, or the missing one."""


def key_of(status: os.stat_result) -> FileKey:
    """Return which file it is."""
    return FileKey(status.st_dev, status.st_ino)


def can_be_said(name: str) -> bool:
    """Return whether the name is UTF-8, without which no frame can say it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class HostPaths:
    """The host's files, as far as they are below the mounted folders."""

    def __init__(self, root: str, mounts: Sequence[str]) -> None:
        self._root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._mounts = [tuple(_parts(mount)) for mount in mounts]

    def close(self) -> None:
        """Close the root."""
        os.close(self._root_fd)

    def look(self, path: str) -> Located:
        """Return what is at a path, its links followed.

        Raises:
            RefusedPath: It leads outside the mounted paths.
            OSError: A folder on the way may not be searched, or there are too many links.
        """
        with self._walk(path) as walk:
            return Located(os.fstat(walk.fd) if walk.is_there else None, tuple(walk.entries))

    def open(self, path: str) -> int:
        """Return a descriptor of the regular file at a path, for reading and without blocking.

        Raises:
            RefusedPath: It leads outside the mounted paths, or is not a regular file.
            FileNotFoundError: It is not there.
            OSError: It cannot be opened.
        """
        with self._walk(path) as walk:
            if not walk.is_there:
                raise FileNotFoundError(errno.ENOENT, "no such file")
            check_regular(path, os.fstat(walk.fd))
            fd = os.open(walk.at[-1], _READ, dir_fd=walk.parent_fd)
            try:
                check_regular(path, os.fstat(fd))  # Boundary: it may have been replaced since
            except RefusedPath:
                os.close(fd)
                raise
            return fd

    def list_folder(self, path: str) -> list[Entry]:
        """Return the entries of a folder, as far as they can lead to a mounted path.

        Raises:
            RefusedPath: It leads outside the mounted paths.
            OSError: It is not there, is no folder, or may not be listed.
        """
        with self.folder(path) as (folder_fd, at), os.scandir(folder_fd) as entries:
            return [
                Entry(entry.name, entry.inode(), entry.is_dir(follow_symlinks=False), entry.is_symlink())
                for entry in entries
                if can_be_said(entry.name) and _may_pass(self._mounts, (*at, entry.name))
            ]

    def states(self, folder: str) -> dict[str, os.stat_result]:
        """Return what is in a folder, by its names."""
        found: dict[str, os.stat_result] = {}
        with suppress(OSError), self.folder(folder) as (folder_fd, _), os.scandir(folder_fd) as entries:
            for entry in entries:
                with suppress(OSError):
                    found[entry.name] = entry.stat(follow_symlinks=False)
        return found

    @contextmanager
    def folder(self, path: str) -> Iterator[tuple[int, list[str]]]:
        """Hold a folder open: its descriptor, and where it really is.

        Raises:
            RefusedPath: It leads outside the mounted paths.
            OSError: It is not there, is no folder, or may not be listed.
        """
        with self._walk(path, is_folder=True) as walk:
            if not walk.is_there:
                raise FileNotFoundError(errno.ENOENT, "no such folder")
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=walk.fd)
            try:
                yield fd, walk.at
            finally:
                os.close(fd)

    def find_file(self, folder: str, key: FileKey) -> str | None:
        """Return the path of a file that is somewhere in a folder, by what it is."""
        with suppress(OSError):
            for entry in self.list_folder(folder):
                path = f"{folder.rstrip('/')}/{entry.name}"
                if entry.inode == key.inode and not entry.is_link:
                    found = self.look(path).status
                    if found is not None and key_of(found) == key:
                        return path
        return None

    @contextmanager
    def _walk(self, path: str, *, is_folder: bool = False) -> Iterator["_Walk"]:
        if "\0" in path or not can_be_said(path):
            raise RefusedPath("no file can have such a name")  # noqa: EM101
        walk = _Walk(self._root_fd, self._mounts, path)
        try:
            walk.run(is_folder=is_folder)
            yield walk
        finally:
            walk.close()


class _Walk:
    """One path on its way."""

    def __init__(self, root_fd: int, mounts: list[tuple[str, ...]], path: str) -> None:
        self.at: list[str] = []
        self.entries: list[tuple[str, str]] = []
        self.is_there = True
        self.fd = os.dup(root_fd)
        self.parent_fd = os.dup(root_fd)
        self._root_fd = root_fd
        self._mounts = mounts
        self._path = path
        self._todo = _parts(path)[::-1]
        self._links: list[tuple[str, str]] = []

    def close(self) -> None:
        os.close(self.fd)
        os.close(self.parent_fd)

    def run(self, *, is_folder: bool) -> None:
        steps = 0
        while self._todo and self.is_there:
            steps += 1
            if steps > MAX_STEPS or len(self._links) > MAX_LINKS:
                raise OSError(errno.ELOOP, "too many links")
            self._step(self._todo.pop())
        # Boundary: folders above the mounted ones may be passed, and files in them may not be read.
        if not is_folder and not _is_below(self._mounts, tuple(self.at)):
            raise self._refusal()
        if self.is_there and self.at:
            self.entries.append((_joined(self.at[:-1]), self.at[-1]))

    def _step(self, name: str) -> None:
        if name == "..":
            self._restart(self.at[:-1])
            return
        if not _may_pass(self._mounts, (*self.at, name)):
            raise self._refusal()
        try:
            fd = os.open(name, _STEP, dir_fd=self.fd)
        except OSError as error:
            if error.errno not in _MISSING:
                raise
            self._miss(name)
            return
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            self._follow(name, fd)
        else:
            os.close(self.parent_fd)
            self.parent_fd, self.fd = self.fd, fd
            self.at.append(name)

    def _miss(self, name: str) -> None:
        self.is_there = False
        self.entries.append((_joined(self.at), name))
        self.at.append(name)
        for rest in reversed(self._todo):  # where it would be, for what may be said of it
            self.at = self.at[:-1] if rest == ".." else [*self.at, rest]

    def _follow(self, name: str, fd: int) -> None:
        try:
            target = os.readlink("", dir_fd=fd)
        finally:
            os.close(fd)
        self.entries.append((_joined(self.at), name))
        self._links.append((_joined([*self.at, name]), target))
        self._todo.extend(_parts(target)[::-1])
        if target.startswith("/"):
            self._restart([])

    def _restart(self, names: list[str]) -> None:
        """Go on from a folder that was passed; its own steps are taken again, so that each is still what it was."""
        os.close(self.fd)
        self.fd = os.dup(self._root_fd)
        self.at = []
        self._todo.extend(reversed(names))

    def _refusal(self) -> RefusedPath:
        if self._links:
            # What a link says need not be UTF-8; what is said of it must be.
            link, target = (os.fsencode(text).decode(errors="replace") for text in self._links[-1])
            return RefusedPath(f"the link {link} leads to {target}, outside the mounted paths")
        return RefusedPath(f"{self._path} is outside the mounted paths")


def check_regular(path: str, status: os.stat_result) -> None:
    """Accept nothing but a regular file.

    Raises:
        RefusedPath: It is something else.
    """
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
        raise RefusedPath(f"{path} is {kind}")  # noqa: EM102


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _joined(parts: Sequence[str]) -> str:
    return "/" + "/".join(parts)


def _is_below(mounts: list[tuple[str, ...]], at: tuple[str, ...]) -> bool:
    return any(at[: len(mount)] == mount for mount in mounts)


def _may_pass(mounts: list[tuple[str, ...]], at: tuple[str, ...]) -> bool:
    return any(at[: len(mount)] == mount[: len(at)] for mount in mounts)
