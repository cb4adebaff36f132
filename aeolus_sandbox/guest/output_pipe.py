"""A named pipe through which a kernel says its output, a JSON line `[kind, content]` a message."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aeolus_sandbox.guest.frames import FrameError, LineSplitter

_READ_BYTES: Final = 256 * 1024
_TURN_BYTES: Final = 1024 * 1024
"""How much is read in one turn of the loop; more than a pipe holds."""
_KINDS: Final = frozenset({"stream", "display_data", "update_display_data", "execute_result", "error"})


class OutputPipe:
    """The guest's end of the pipe; who writes waits while it is full.

    Raises:
        OSError: The pipe cannot be made.
    """

    def __init__(self) -> None:
        # Boundary: mkdtemp makes the folder 0700, so that no other user of the container reaches the pipe.
        self.path = Path(tempfile.mkdtemp(prefix="aeolus-")) / "output"
        os.mkfifo(self.path, 0o600)
        # For writing too: a pipe without a writer is at its end, and readable for ever.
        self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._splitter = LineSplitter()

    def take(self) -> Iterator[tuple[str, Any]]:
        """Yield kind and content of what has come; the kind is empty where it cannot be read."""
        taken = 0
        while self.fd >= 0 and taken < _TURN_BYTES:
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return
            taken += len(data)
            yield from map(_message, self._lines(data))

    def close(self) -> None:
        """Close and remove the pipe; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            shutil.rmtree(self.path.parent, ignore_errors=True)
        self.fd = -1

    def _lines(self, data: bytes) -> list[bytes]:
        try:
            return self._splitter.feed(data)
        except FrameError:
            self._splitter = LineSplitter()
            return [b"", *self._splitter.feed(data.partition(b"\n")[2])]


def _message(line: bytes) -> tuple[str, Any]:
    # Boundary: all code in the kernel can write here; what is not output is only named.
    try:
        kind, content = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return "", "output that is no message"
    if kind == "note" and isinstance(content, str):
        return "", content[:200]
    return (kind, content) if isinstance(kind, str) and kind in _KINDS else ("", "output of an unknown kind")
