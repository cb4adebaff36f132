"""A file on its way into a sandbox: its place, its size, and its content piece by piece."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from aeolus_sandbox.errors import ConfigurationError

PIECE_BYTES: Final = 256 * 1024
"""How much of a file is in memory at once."""
# Boundary: a link could be pointed elsewhere by whoever may write next to it, so none is followed at the end; and
# opening a FIFO must not wait for its other end.
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SourceFile:
    """What is to be written below a workspace; bytes, or a file of the host that is read while it is sent."""

    path: str
    """Where it goes, relative to the workspace."""
    size_bytes: int
    content: bytes | Path
    identity: tuple[int, int] = (0, 0)
    """Device and inode of the host's file, which must still be the same when it is read."""

    @classmethod
    def of(cls, path: str, content: bytes | Path) -> Self:
        """Return the file with that content; blocks where the content is a path.

        Raises:
            ConfigurationError: The path is not one of a regular file.
        """
        if isinstance(content, bytes):
            return cls(path, len(content), content)
        descriptor = _open(content)
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if not stat.S_ISREG(found.st_mode):
            msg = f"{str(content)!r} is not a regular file"
            raise ConfigurationError(msg)
        return cls(path, found.st_size, content, (found.st_dev, found.st_ino))

    async def pieces(self, max_bytes: int = PIECE_BYTES) -> AsyncIterator[bytes]:
        """Yield the content in order, exactly `size_bytes` of it; of an empty file, one empty piece.

        Raises:
            ConfigurationError: The host's file was replaced or became shorter meanwhile.
        """
        for start in range(0, max(1, self.size_bytes), max_bytes):
            end = min(start + max_bytes, self.size_bytes)
            if isinstance(self.content, bytes):
                yield self.content[start:end]
            else:
                yield await asyncio.to_thread(self._read, self.content, start, end - start)

    def _read(self, source: Path, start: int, size_bytes: int) -> bytes:
        # Opened for each piece: a descriptor would be left open where the sender is cancelled.
        descriptor = _open(source)
        try:
            found = os.fstat(descriptor)
            data = os.pread(descriptor, size_bytes, start)
        finally:
            os.close(descriptor)
        if (found.st_dev, found.st_ino) != self.identity or len(data) != size_bytes:
            msg = f"{str(source)!r} was changed while it was sent"
            raise ConfigurationError(msg)
        return data


def _open(source: Path) -> int:
    try:
        return os.open(source, _FLAGS)
    except OSError as error:
        msg = f"cannot read {str(source)!r}: {error.strerror} (links are not followed)"
        raise ConfigurationError(msg) from error
