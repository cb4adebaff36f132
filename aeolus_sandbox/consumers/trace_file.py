"""The JSONL files of traces: their names, their lines, and how they are written and read."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from aeolus_sandbox.errors import ConfigurationError, StorageError, StorageFull
from aeolus_sandbox.events import StreamEvent
from aeolus_sandbox.storage.columns import moment_from_column, moment_to_column
from aeolus_sandbox.storage.event_json import event_from_value, to_json

_NAME_CHARACTERS: Final = 200  # file systems take 255 bytes with the suffix
_DIGEST_CHARACTERS: Final = 32
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """One line of a trace."""

    event: StreamEvent
    """The event; of joined ones, the first with the text of all."""
    time: datetime
    """When it came, by the clock of the machine (UTC)."""
    elapsed_ms: float
    """Time since the first event of the run, in milliseconds; monotonic."""
    last_sequence: int
    """`sequence` of the last event that is joined into it."""
    left_out_characters: int = 0
    """How many characters of a tool's output were left out."""
    lost_events: int = 0
    """How many events before it could not be written."""


def file_name(session_id: str) -> str:
    """Return the name of a session's file.

    Boundary: an id is never a path. What is not a letter, a digit, `-`, `_`, `~` or `.` is escaped, as in a URL, and
    so is a dot at the beginning; of a very long id, a digest stands for the end. Different ids have different names.

    Raises:
        ConfigurationError: The id is empty.
    """
    if not session_id:
        msg = "a trace needs the id of its session"
        raise ConfigurationError(msg)
    name = quote(session_id, safe="", errors="surrogatepass")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _NAME_CHARACTERS:
        digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        name = f"{name[: _NAME_CHARACTERS - _DIGEST_CHARACTERS - 1]}-{digest}"
    return f"{name}.jsonl"


def format_line(line: TraceLine) -> bytes:
    """Return a line as it stands in a file; what goes without saying is left out."""
    values: dict[str, Any] = {"time": moment_to_column(line.time), "elapsed_ms": round(line.elapsed_ms, 3)}
    if line.lost_events:
        values["lost_events"] = line.lost_events
    if line.left_out_characters:
        values["left_out_characters"] = line.left_out_characters
    if line.last_sequence != line.event.sequence:
        values["last_sequence"] = line.last_sequence
    return to_json(values | {"event": line.event.model_dump()}).encode("ascii") + b"\n"


def read_trace(path: Path) -> Iterator[TraceLine]:
    """Yield the lines of a trace file; a line that a crash cut off is passed over. It blocks.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        for data in file:
            try:
                yield _parsed(json.loads(data))
            except (ValueError, KeyError, TypeError):
                continue


def _parsed(values: dict[str, Any]) -> TraceLine:
    event = event_from_value(values["event"])
    return TraceLine(
        event=event,
        time=moment_from_column(values["time"]),
        elapsed_ms=float(values["elapsed_ms"]),
        last_sequence=values.get("last_sequence", event.sequence),
        left_out_characters=values.get("left_out_characters", 0),
        lost_events=values.get("lost_events", 0),
    )


class TraceFile:
    """A file that lines are appended to; every method blocks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._is_torn = False

    def append(self, line: bytes) -> None:
        """Hand a line over to the operating system; one that was cut off before it stays a line of its own.

        Raises:
            StorageFull: There is no room.
            StorageError: It cannot be written.
        """
        try:
            descriptor = self._open()
            rest = memoryview(b"\n" + line if self._is_torn else line)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
                self._is_torn = bool(rest)
        except OSError as error:
            raise self._storage_error(error) from error

    def close(self) -> None:
        """Wait until all is on the disk, and close the file.

        Raises:
            StorageError: It may not be on the disk.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise self._storage_error(error) from error
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            # Boundary: traces hold what the agent has seen; they are for their user alone. No link is followed.
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, _FLAGS, 0o600)
            size = os.fstat(descriptor).st_size
            self._is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            self._descriptor = descriptor
        return self._descriptor

    def _storage_error(self, error: OSError) -> StorageError:
        place = f"the trace {str(self._path)!r}"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return StorageFull(f"there is no room for {place} ({error}): make room on its disk")
        return StorageError(
            f"{place} cannot be written ({error}): see whether its folder is writable, or name another"
        )
