"""What SQLite's errors mean to whoever keeps a state file, and what to do about them.

Its result codes: https://sqlite.org/rescode.html. Its messages name tables and columns, never a value, so that they
can be shown.
"""

import errno
import os
from pathlib import Path
from typing import Final

from aeolus_sandbox.errors import StorageBusy, StorageError, StorageFull

_BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_FULL: Final = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")
_FULL_WHERE_NO_ROOM: Final = ("SQLITE_IOERR", "SQLITE_CANTOPEN")
"""Codes that say what failed, not why."""
_NO_ROOM_BYTES: Final = 64 * 1024

_WHAT_TO_DO: Final = {
    "SQLITE_NOTADB": "it is not such a file: move it away, or name another one",
    "SQLITE_CORRUPT": "it is damaged: move it away and put a copy in its place, or start with a new one",
    "SQLITE_READONLY": "make it writable, with the folder that it is in, or name another one",
    "SQLITE_CANTOPEN": "see whether it is a file, and whether its folder is writable, or name another one",
    "SQLITE_IOERR": "see whether its disk works",
}


def storage_error(error: Exception, path: Path, *, kind: str = "state file") -> StorageError:
    """Return the error that a failure of SQLite, or of the file's making, is to the caller."""
    name = getattr(error, "sqlite_errorname", "")
    place = f"the {kind} {str(path)!r}"
    if _is_for_lack_of_room(error, name, path):
        return StorageFull(f"there is no room for {place} ({error}): make room on its disk and try again")
    if name.startswith(_BUSY):
        return StorageBusy(f"another process holds {place} locked ({error}): try again when it has ended")
    known = [advice for code, advice in _WHAT_TO_DO.items() if name.startswith(code)]
    advice = known[0] if known else "see whether it can be made and written there, or name another one"
    return StorageError(f"{place} cannot be used ({error}): {advice}")


def _is_for_lack_of_room(error: Exception, name: str, path: Path) -> bool:
    if isinstance(error, OSError):
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    return name.startswith(_FULL) or (name.startswith(_FULL_WHERE_NO_ROOM) and not _has_room(path.parent))


def _has_room(folder: Path) -> bool:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return True
    return disk.f_bavail * disk.f_frsize >= _NO_ROOM_BYTES
