"""Writes the files that the host sends, below one folder and nowhere else."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from aeolus_sandbox.guest.frames import Done, WriteFile

MAX_OPEN_FILES: Final = 32
"""How many files may be under way at once."""
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO that the code has put there must fail, not wait for its reader.
_FILE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _RefusedPath(OSError):
    """The path is not one of a file below the folder."""


@dataclass(slots=True)
class _OpenFile:
    path: str
    folder_fd: int
    name: str
    fd: int

    def close(self) -> None:
        os.close(self.fd)
        os.close(self.folder_fd)


class WorkspaceFiles:
    """Puts files together from pieces; the operation tells which pieces belong to one file.

    A file that could not be written to its end is removed, and the rest of its pieces is swallowed.
    """

    def __init__(self, root: str) -> None:
        self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._open: dict[int, _OpenFile] = {}
        self._failed: set[int] = set()

    def write(self, piece: WriteFile) -> Done | None:
        """Write one piece, and return the answer when the operation has ended with it."""
        if piece.op in self._failed:
            if piece.last:
                self._failed.discard(piece.op)
            return None
        try:
            self._write(piece)
        except (OSError, ValueError) as error:  # ValueError: a NUL or a lone surrogate in the path
            self._abandon(piece)
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            return Done(op=piece.op, status="refused", message=f"cannot write {piece.path[:200]!r}: {reason}")
        return Done(op=piece.op, status="ok") if piece.last else None

    def close(self) -> None:
        """Close what is open; a second call does nothing."""
        while self._open:
            self._open.popitem()[1].close()
        if self._root_fd >= 0:
            os.close(self._root_fd)
        self._root_fd = -1

    def _write(self, piece: WriteFile) -> None:
        if piece.first:
            if piece.op in self._open:
                raise _RefusedPath("the operation is writing a file already")  # noqa: EM101
            self._open[piece.op] = self._open_file(piece.path)
        file = self._open.get(piece.op)
        if file is None:
            raise _RefusedPath("the first piece is missing")  # noqa: EM101
        if file.path != piece.path:
            raise _RefusedPath(f"the operation is writing {file.path[:200]!r}")  # noqa: EM102
        unwritten = memoryview(piece.data)
        while unwritten:
            unwritten = unwritten[os.write(file.fd, unwritten) :]
        if piece.last:
            self._open.pop(piece.op).close()

    def _abandon(self, piece: WriteFile) -> None:
        if not piece.last:
            self._failed.add(piece.op)
        file = self._open.pop(piece.op, None)
        if file is None:
            return
        try:
            os.unlink(file.name, dir_fd=file.folder_fd)
        except OSError:
            pass  # the code has moved or removed it
        finally:
            file.close()

    def _open_file(self, path: str) -> _OpenFile:
        # Boundary: only the folder's descriptor is trusted; each step down refuses symlinks, so that the code
        # cannot lead a file elsewhere, not even by swapping a folder for a link between two steps.
        *folders, name = _checked_parts(path)
        if len(self._open) >= MAX_OPEN_FILES:
            raise _RefusedPath(f"{MAX_OPEN_FILES} files are being written already")  # noqa: EM102
        folder_fd = os.dup(self._root_fd)
        try:
            for folder in folders:
                folder_fd = _step_down(folder_fd, folder)
            fd = os.open(name, _FILE_FLAGS, 0o644, dir_fd=folder_fd)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise _RefusedPath("not a regular file")  # noqa: EM101
                os.ftruncate(fd, 0)
            except OSError:
                os.close(fd)
                raise
        except (OSError, ValueError):
            os.close(folder_fd)
            raise
        return _OpenFile(path=path, folder_fd=folder_fd, name=name, fd=fd)


def _checked_parts(path: str) -> list[str]:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise _RefusedPath("the path must be relative, and without empty, '.' and '..' parts")  # noqa: EM101
    return parts


def _step_down(folder_fd: int, name: str) -> int:
    """Return the descriptor of the folder `name` in the folder, made if need be; the old one is closed."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=folder_fd)
    next_fd = os.open(name, _FOLDER_FLAGS, dir_fd=folder_fd)
    os.close(folder_fd)
    return next_fd
