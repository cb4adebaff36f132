"""Finds out which files below the working directory were created, modified or deleted since it last looked.

What counts is a regular file. Not looked at: entries whose name begins with a dot (the working directory is the home
folder, where programs keep caches and settings), and folders called `__pycache__` or `node_modules`. Names that are
not UTF-8 cannot be said in JSON and are counted only.
"""

import errno
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from aeolus_sandbox.guest.frames import HEAD_BYTES, MAX_CHANGES, Changes, FileChange
from aeolus_sandbox.guest.workspace_paths import (
    MAX_PATH_BYTES,
    open_folder,
    open_for_reading,
    stat_below,
)

MAX_ENTRIES: Final = 50_000
"""How many entries are looked at."""
MAX_DEPTH: Final = 32
"""How many folders deep."""
LOOK_S: Final = 1.0
"""How long a look may take; nothing else is served meanwhile."""
QUICK_LOOK_S: Final = 0.005
"""How long a look may have taken that others may wait for."""
MAX_NAMED_BYTES: Final = 256 * 1024
"""How long all paths of one answer are together."""
SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules"})
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class _State(NamedTuple):
    """What differs when a file was written, replaced or renamed; a program can set back its mtime, not its ctime."""

    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int


class _Look(NamedTuple):
    began_ns: int
    took_s: float
    files: dict[str, _State]
    unnamed: int
    """How many files have a name that cannot be said."""
    complete: bool


class WorkspaceChanges:
    """Remembers what was there when it last looked."""

    def __init__(self, root_fd: int) -> None:
        """Look for the first time; the descriptor stays the caller's."""
        self._root_fd = root_fd
        self._before = self._look()

    @property
    def looks_quickly(self) -> bool:
        """Whether the last look took so little that the next one will not be noticed."""
        return self._before.took_s < QUICK_LOOK_S

    def note_written(self, path: str) -> None:
        """Take a file that the host has written for one that was there already."""
        with suppress(OSError, ValueError):  # the code may have moved it meanwhile
            self._before.files[path] = _state(stat_below(self._root_fd, path))

    def take(self, op: int) -> Changes:
        """Return what was changed since the last call, files that are there before those that are gone."""
        before, now = self._before, self._look()
        found = [*_written(before, now), *_deleted(before, now)]
        if not now.complete:  # what was not reached this time is not forgotten
            now = now._replace(files=before.files | now.files)
        self._before = now
        named = self._named(found)
        return Changes(
            op=op,
            files=named,
            left_out=len(found) - len(named) + max(0, now.unnamed - before.unnamed),
            complete=now.complete,
        )

    def _named(self, found: list[FileChange]) -> list[FileChange]:
        named: list[FileChange] = []
        left_bytes = MAX_NAMED_BYTES
        for file in found[:MAX_CHANGES]:
            left_bytes -= len(file.path.encode())
            if left_bytes < 0:
                break
            named.append(self._with_head(file))
        return named

    def _with_head(self, file: FileChange) -> FileChange:
        if file.change == "deleted":
            return file
        try:
            fd = open_for_reading(self._root_fd, file.path)
        except OSError:
            return file
        try:
            head = os.read(fd, HEAD_BYTES)
        except OSError:
            head = b""
        finally:
            os.close(fd)
        return FileChange(path=file.path, change=file.change, size_bytes=file.size_bytes, head=head)

    def _look(self) -> _Look:
        began_ns, walk = time.time_ns(), _Walk(self._root_fd)
        files: dict[str, _State] = {}
        unnamed = 0
        for path, state in walk.files():
            if _can_be_said(path):
                files[path] = state
            else:
                unnamed += 1
        return _Look(began_ns, walk.took_s, files, unnamed, walk.complete)


class _Walk:
    """One walk through the folders, those further up first, within the limits."""

    def __init__(self, root_fd: int) -> None:
        self.complete = True
        self._root_fd = root_fd
        self._entries_left = MAX_ENTRIES
        self._began = time.monotonic()
        self._deadline = self._began + LOOK_S

    @property
    def took_s(self) -> float:
        """How long it has taken until now."""
        return time.monotonic() - self._began

    def files(self) -> Iterator[tuple[str, _State]]:
        """Yield path and state of each file."""
        folders: deque[tuple[str, ...]] = deque([()])
        while folders:
            folder = folders.popleft()
            prefix = "".join(f"{name}/" for name in folder)
            for entry in self._entries(folder):
                try:
                    if entry.is_file(follow_symlinks=False):
                        yield prefix + entry.name, _state(entry.stat(follow_symlinks=False))
                    elif entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED_FOLDERS:
                        folders.append((*folder, entry.name))
                except FileNotFoundError:
                    pass  # the code has removed it meanwhile

    def _entries(self, folder: tuple[str, ...]) -> Iterator[os.DirEntry[str]]:
        """Yield what is to be looked at in a folder; one that is gone by now is empty."""
        if len(folder) > MAX_DEPTH:
            self.complete = False
            return
        try:
            folder_fd = open_folder(self._root_fd, folder)
        except OSError as error:
            self.complete = self.complete and error.errno in _GONE
            return
        try:
            with os.scandir(folder_fd) as entries:
                for entry in entries:
                    if self._is_over():
                        return
                    if not entry.name.startswith("."):
                        yield entry
        finally:
            os.close(folder_fd)

    def _is_over(self) -> bool:
        self._entries_left -= 1
        is_over = self._entries_left < 0 or time.monotonic() > self._deadline
        self.complete = self.complete and not is_over
        return is_over


def _written(before: _Look, now: _Look) -> Iterator[FileChange]:
    for path, state in now.files.items():
        known = before.files.get(path)
        if known is None and (before.complete or state.ctime_ns > before.began_ns):
            yield FileChange(path=path, change="created", size_bytes=state.size_bytes)
        elif known is not None and known != state:
            yield FileChange(path=path, change="modified", size_bytes=state.size_bytes)


def _deleted(before: _Look, now: _Look) -> Iterator[FileChange]:
    if now.complete:
        for path in before.files:
            if path not in now.files:
                yield FileChange(path=path, change="deleted")


def _state(found: os.stat_result) -> _State:
    return _State(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _can_be_said(path: str) -> bool:
    try:
        return len(path.encode()) <= MAX_PATH_BYTES
    except UnicodeEncodeError:
        return False
