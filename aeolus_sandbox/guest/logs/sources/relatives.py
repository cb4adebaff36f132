"""Rotated files beside a log: what their names have in common, and whether one holds what was read of another."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from aeolus_sandbox.guest.logs.sources.contents import Content, content_of
from aeolus_sandbox.guest.logs.sources.paths import FileKey, HostPaths, check_regular, key_of

MAX_RELATIVES: Final = 1000
"""How many files beside one are looked at."""
_DATE: Final = re.compile(r"[-_.]?\d{4}-?\d{2}-?\d{2}(?:[-_T.]?\d{1,10}){0,4}")
_SUFFIX: Final = re.compile(r"(?:\.\d{1,10}|\.(?:gz|bz2|xz|zst|old|bak))$")
_ROTATED: Final = re.compile(r"[-_.](?:\d|old|bak|gz)")
_NUMBER: Final = re.compile(r"\.(\d{1,10})(?:\.|$)")


class Age(NamedTuple):
    """What history is sorted by: the last write, then the number in the name, higher ones being older."""

    modified_ns: int
    minus_number: int
    is_compressed: bool


class Relative(NamedTuple):
    """A file beside another."""

    path: str
    key: FileKey
    status: os.stat_result

    @property
    def age(self) -> Age:
        """How old it is."""
        return age_of(self.path, self.status.st_mtime_ns)


def age_of(path: str, modified_ns: int) -> Age:
    """Return how old a file is, for comparison."""
    numbers = _NUMBER.findall(os.path.basename(path))  # noqa: PTH119
    return Age(modified_ns, -int(numbers[-1]) if numbers else 0, path.endswith(".gz"))


def stem(path: str) -> str:
    """Return the path without dates, numbers and endings that rotation adds to a name."""
    folder, name = os.path.split(path)
    kept = _DATE.sub("", name)
    while (shorter := _SUFFIX.sub("", kept)) != kept:
        kept = shorter
    return f"{folder}/{kept or name}"


def looks_rotated(name: str) -> bool:
    """Return whether there is something in a name that rotation may have added to another one."""
    return _ROTATED.search(name, 1) is not None


def relatives(host: HostPaths, path: str, *, rotated_only: bool = False) -> Iterator[Relative]:
    """Yield the regular files in a file's folder whose names begin with its own, the newest first.

    With `rotated_only`, the rest of the name must look like what rotation adds.
    """
    folder, name = os.path.split(path)
    found: list[Relative] = []
    with suppress(OSError):
        names = [
            entry.name for entry in host.list_folder(folder) if not entry.is_folder and not entry.is_link
        ]
        for other in names:
            if not other.startswith(name) or other == name:
                continue
            if rotated_only and not _ROTATED.match(other, len(name)):
                continue
            with suppress(OSError):
                status = host.look(f"{folder}/{other}").status
                if status is not None:
                    check_regular(other, status)
                    found.append(Relative(f"{folder}/{other}", key_of(status), status))
            if len(found) >= MAX_RELATIVES:
                break
    yield from sorted(found, key=lambda each: each.age, reverse=True)


def continued_in(fd: int, head: bytes, tail: bytes, offset: int) -> Content | None:
    """Return the content of a file from an offset on, if it has the head, and the tail before that offset."""
    content, begin = content_of(fd)
    if not head or not begin.startswith(head):
        return None
    before = content.skip_to(fd, offset)
    return content if before is not None and before.endswith(tail) else None
