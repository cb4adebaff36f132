"""Writes the files that the host sends, below one folder and nowhere else."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aeolus_sandbox.guest.frames import Done, WriteFile
from aeolus_sandbox.guest.workspace_paths import RefusedPath, checked_parts, open_folder, open_regular

MAX_OPEN_FILES: Final = 32
"""How many files may be under way at once."""


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

    def __init__(self, root_fd: int, on_written: Callable[[str], None] = lambda path: None) -> None:
        """Write below the folder of that descriptor, which stays the caller's; `on_written` gets each path."""
        self._root_fd = root_fd
        self._on_written = on_written
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
        if not piece.last:
            return None
        self._on_written(piece.path)
        return Done(op=piece.op, status="ok")

    def close(self) -> None:
        """Close what is open; a second call does nothing."""
        while self._open:
            self._open.popitem()[1].close()

    def _write(self, piece: WriteFile) -> None:
        if piece.first:
            if piece.op in self._open:
                raise RefusedPath("the operation is writing a file already")  # noqa: EM101
            self._open[piece.op] = self._open_file(piece.path)
        file = self._open.get(piece.op)
        if file is None:
            raise RefusedPath("the first piece is missing")  # noqa: EM101
        if file.path != piece.path:
            raise RefusedPath(f"the operation is writing {file.path[:200]!r}")  # noqa: EM102
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
        *folders, name = checked_parts(path)
        if len(self._open) >= MAX_OPEN_FILES:
            raise RefusedPath(f"{MAX_OPEN_FILES} files are being written already")  # noqa: EM102
        folder_fd = open_folder(self._root_fd, folders, make=True)
        try:
            fd = open_regular(name, os.O_WRONLY | os.O_CREAT, folder_fd)
        except (OSError, ValueError):
            os.close(folder_fd)
            raise
        file = _OpenFile(path=path, folder_fd=folder_fd, name=name, fd=fd)
        try:
            os.ftruncate(fd, 0)
        except OSError:
            file.close()
            raise
        return file
