"""Open files, no more than the process may have: those that were read to their end are closed first."""

import errno
import os
import resource
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from aeolus_sandbox.guest.logs.sources.generations import Generation
from aeolus_sandbox.guest.logs.sources.paths import FileKey, HostPaths, key_of

MOST_OPEN: Final = 512
"""How many log files are open at once at most."""
_FEWEST: Final = 4
_SHORT: Final = (errno.EMFILE, errno.ENFILE)


class OpenFiles:
    """The files that are open, the one used last at the end."""

    def __init__(self, host: HostPaths) -> None:
        self._host = host
        self._fds: OrderedDict[Generation, int] = OrderedDict()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # Half for the logs: the rest is for folders, the watch, and whatever else the program holds.
        self._most = MOST_OPEN if limit < 0 else max(_FEWEST, min(MOST_OPEN, limit // 2))

    def __iter__(self) -> Iterator[Generation]:
        """Return those whose files are open."""
        return iter(self._fds)

    def held(self, generation: Generation) -> int | None:
        """Return the descriptor of a file if it is open."""
        return self._fds.get(generation)

    def get(self, generation: Generation) -> int:
        """Return the descriptor of a file, which is opened if need be.

        Raises:
            FileNotFoundError: It is nowhere any more.
            OSError: It cannot be opened, or (EMFILE) none of those that are open can be closed for it.
        """
        fd = self._fds.get(generation)
        if fd is not None:
            self._fds.move_to_end(generation)
            return fd
        if len(self._fds) >= self._most and not self._make_room():
            raise OSError(errno.EMFILE, "too many open files")
        fd = self._fds[generation] = self._open(generation)
        return fd

    def hold(self, generation: Generation) -> None:
        """Open a file while there is room, so that it can be read even if it is deleted."""
        if generation not in self._fds and len(self._fds) < self._most:
            with suppress(OSError):
                self._fds[generation] = self._open(generation)

    def put(self, generation: Generation, fd: int) -> None:
        """Hold a descriptor for a file."""
        self.close(generation)
        self._fds[generation] = fd

    def hand_over(self, generation: Generation, successor: Generation) -> None:
        """Give a file's descriptor to the generation that is in the file now."""
        fd = self._fds.pop(generation, None)
        if fd is not None:
            self._fds[successor] = fd

    def close(self, generation: Generation) -> None:
        """Close a file."""
        fd = self._fds.pop(generation, None)
        if fd is not None:
            os.close(fd)

    def close_all(self) -> None:
        """Close all files."""
        for generation in list(self._fds):
            self.close(generation)

    def _open(self, generation: Generation) -> int:
        while True:
            try:
                return self._find(generation.where, generation)
            except OSError as error:
                if error.errno not in _SHORT or not self._make_room():
                    raise

    def _find(self, path: str, generation: Generation) -> int:
        with suppress(FileNotFoundError):
            fd = self._open_as(path, generation.key)
            if fd is not None:
                return fd
        folder = os.path.dirname(path)  # noqa: PTH120
        found = self._host.find_file(folder, generation.key)
        fd = self._open_as(found, generation.key) if found is not None else None
        if found is None or fd is None:
            raise FileNotFoundError(errno.ENOENT, "no such file")
        generation.where = found
        return fd

    def _open_as(self, path: str, key: FileKey) -> int | None:
        fd = self._host.open(path)
        if key_of(os.fstat(fd)) == key:
            return fd
        os.close(fd)
        return None

    def _make_room(self) -> bool:
        """Close one file that can be found again and of which nothing is half read."""
        idle = [each for each in self._fds if each.is_drained or not each.is_begun]
        if not idle:
            return False
        # Best one that has been read to its end and has its name; of these the one that was used longest ago.
        self.close(min(idle, key=lambda each: (not each.is_drained, each.is_ready, each.left_at is not None)))
        return True
