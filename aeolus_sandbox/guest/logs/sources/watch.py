"""What the kernel says of changes in folders (inotify(7))."""

import errno
import os
from contextlib import suppress
from typing import NamedTuple


class Change(NamedTuple):
    """What has happened to an entry of a folder."""

    folder: str
    name: str
    is_content: bool
    """Whether it was only written to."""
    is_folder: bool


class WatchFailed(Exception):
    """The kernel's events cannot be had; the text says why."""


class FolderWatch:
    """Watches folders, each once.

    Raises:
        WatchFailed: The library is missing, or the kernel refuses.
    """

    def __init__(self) -> None:
        try:
            from inotify_simple import INotify, flags
        except ImportError as error:
            raise WatchFailed("inotify_simple is not installed") from error  # noqa: EM101
        try:
            self._inotify = INotify(inheritable=False, nonblocking=True)
        except OSError as error:
            raise WatchFailed(_reason(error)) from error
        self._content = int(flags.MODIFY)
        self._overflow = int(flags.Q_OVERFLOW)
        self._ignored = int(flags.IGNORED)
        self._moved = int(flags.MOVE_SELF)
        self._folder = int(flags.ISDIR)
        self._mask = int(
            flags.CREATE
            | flags.MODIFY
            | flags.MOVED_FROM
            | flags.MOVED_TO
            | flags.DELETE
            | flags.ATTRIB
            | flags.MOVE_SELF
            | flags.ONLYDIR
        )
        self._folders: dict[int, set[str]] = {}
        self._watched: dict[str, int] = {}

    @property
    def fd(self) -> int:
        """What is readable when something has happened."""
        fd: int = self._inotify.fileno()
        return fd

    def __contains__(self, folder: str) -> bool:
        """Return whether the folder is watched."""
        return folder in self._watched

    def add(self, folder: str, folder_fd: int) -> None:
        """Watch a folder that is held open, under its host name.

        Raises:
            WatchFailed: The kernel watches no more folders.
        """
        # Boundary: by the descriptor, so that what is watched is what was checked.
        try:
            number = self._inotify.add_watch(f"/proc/self/fd/{folder_fd}", self._mask)
        except OSError as error:
            raise WatchFailed(_reason(error)) from error
        self._folders.setdefault(number, set()).add(folder)
        self._watched[folder] = number

    def read(self) -> list[Change] | None:
        """Return what has happened since the last call; None: too much, so that everything must be looked at."""
        changes: list[Change] = []
        is_whole = True
        for event in self._inotify.read(timeout=0):
            if event.mask & self._overflow:
                is_whole = False
            elif event.mask & (self._ignored | self._moved):
                self._drop(event.wd, is_watched=bool(event.mask & self._moved))
                is_whole = False
            elif event.name:
                is_content = event.mask == self._content
                is_folder = bool(event.mask & self._folder)
                folders = self._folders.get(event.wd, ())
                changes.extend(Change(folder, event.name, is_content, is_folder) for folder in folders)
        return changes if is_whole else None

    def close(self) -> None:
        """Watch nothing any more."""
        self._inotify.close()

    def _drop(self, number: int, *, is_watched: bool) -> None:
        """Forget a folder that is gone, or whose name is another one's by now."""
        for folder in self._folders.pop(number, ()):
            self._watched.pop(folder, None)
        if is_watched:
            with suppress(OSError):
                self._inotify.rm_watch(number)


def _reason(error: OSError) -> str:
    names = {
        errno.EMFILE: "too many inotify instances or open files",
        errno.ENOSPC: "too many inotify watches",
    }
    return names.get(error.errno or 0, os.strerror(error.errno or 0))
