"""What lies beside a log when it is found: history that nobody has asked for, and that is no part of a later one."""

import os
from contextlib import suppress
from typing import NamedTuple

from aeolus_sandbox.guest.logs.sources.contents import HEAD_BYTES
from aeolus_sandbox.guest.logs.sources.paths import FileKey, HostPaths, key_of
from aeolus_sandbox.guest.logs.sources.relatives import MAX_RELATIVES, Relative, looks_rotated


class _State(NamedTuple):
    size: int
    modified_ns: int
    head: bytes


class Bystanders:
    """What was in the folders of logs when they were found.

    Its writer may go on with a file for a while after its rotation, and the inode of one that is deleted is another
    file's soon: so a file that has changed is still known by how it begins.
    """

    def __init__(self, host: HostPaths) -> None:
        self._host = host
        self._folders: dict[str, dict[FileKey, _State]] = {}

    def are_known(self, path: str) -> bool:
        """Return whether what is in a file's folder was noted."""
        return os.path.dirname(path) in self._folders  # noqa: PTH120

    def note(self, path: str, *, between: tuple[str, ...]) -> None:
        """Remember what is in a file's folder.

        Args:
            path: The file.
            between: Logs that are not there at the moment: what is named after them may be what is missed next.
        """
        folder = os.path.dirname(path)  # noqa: PTH120
        states = self._folders[folder] = {}
        there = [
            each
            for each in self._host.states(folder).items()
            if not f"{folder}/{each[0]}".startswith(between)
        ]
        newest = sorted(there, key=lambda each: -each[1].st_mtime_ns)
        rotated = [name for name, _ in newest if looks_rotated(name)][:MAX_RELATIVES]
        heads = {name: self._head(f"{folder}/{name}") for name in rotated}
        for name, status in newest:
            states[key_of(status)] = _State(status.st_size, status.st_mtime_ns, heads.get(name, b""))

    def __contains__(self, relative: Relative) -> bool:
        """Return whether a file was there, under whatever name."""
        state = self._folders.get(os.path.dirname(relative.path), {}).get(relative.key)  # noqa: PTH120
        if state is None:
            return False
        if state.modified_ns == relative.status.st_mtime_ns:
            return True
        has_grown = relative.status.st_size >= state.size and bool(state.head)
        return has_grown and self._head(relative.path).startswith(state.head)

    def _head(self, path: str) -> bytes:
        with suppress(OSError):
            fd = self._host.open(path)
            try:
                return os.pread(fd, HEAD_BYTES, 0)
            finally:
                os.close(fd)
        return b""
