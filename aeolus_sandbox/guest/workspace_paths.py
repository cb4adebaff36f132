"""Paths below the workspace, opened step by step so that no link leads out of it."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

MAX_PATH_BYTES: Final = 4096
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO that the code has put there must not wait for its other end.
_FILE_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class RefusedPath(OSError):
    """The path is not one of a file below the folder."""


def open_root(path: str) -> int:
    """Return the descriptor of the folder that everything is below of."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def checked_parts(path: str) -> list[str]:
    """Return the names that a path consists of.

    Raises:
        RefusedPath: It is absolute, has an empty, '.' or '..' part, or is too long.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise RefusedPath("the path must be relative, and without empty, '.' and '..' parts")  # noqa: EM101
    if len(path) > MAX_PATH_BYTES:
        raise RefusedPath("the path is too long")  # noqa: EM101
    return parts


def open_folder(root_fd: int, folders: Sequence[str], *, make: bool = False) -> int:
    """Return the descriptor of a folder below the root, which is made if need be and `make` says so.

    Raises:
        OSError: It is not there, or a link stands in its way.
    """
    # Boundary: only the root's descriptor is trusted; each step down refuses symlinks, so that the code cannot lead
    # us elsewhere, not even by swapping a folder for a link between two steps.
    folder_fd = os.dup(root_fd)
    try:
        for name in folders:
            folder_fd = _step_down(folder_fd, name, make=make)
    except (OSError, ValueError):
        os.close(folder_fd)
        raise
    return folder_fd


def open_regular(name: str, flags: int, folder_fd: int) -> int:
    """Return the descriptor of a regular file of the folder, not blocking and following no link.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """
    fd = os.open(name, flags | _FILE_FLAGS, 0o644, dir_fd=folder_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise RefusedPath("not a regular file")  # noqa: EM101
    return fd


def open_for_reading(root_fd: int, path: str) -> int:
    """Return the descriptor of a regular file below the root.

    Raises:
        OSError: There is none, or a link stands in its way.
        ValueError: The path cannot be one, as with a NUL.
    """
    with _folder_of(root_fd, path) as (folder_fd, name):
        return open_regular(name, os.O_RDONLY, folder_fd)


def stat_below(root_fd: int, path: str) -> os.stat_result:
    """Return the state of what is at a path below the root; of a link, its own.

    Raises:
        OSError: There is nothing, or a link stands in its way.
    """
    with _folder_of(root_fd, path) as (folder_fd, name):
        return os.lstat(name, dir_fd=folder_fd)


@contextmanager
def _folder_of(root_fd: int, path: str) -> Iterator[tuple[int, str]]:
    *folders, name = checked_parts(path)
    folder_fd = open_folder(root_fd, folders)
    try:
        yield folder_fd, name
    finally:
        os.close(folder_fd)


def _step_down(folder_fd: int, name: str, *, make: bool) -> int:
    """Return the descriptor of the folder `name` in the folder; the old one is closed."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=folder_fd)
    next_fd = os.open(name, _FOLDER_FLAGS, dir_fd=folder_fd)
    os.close(folder_fd)
    return next_fd
