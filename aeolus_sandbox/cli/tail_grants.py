"""What whoever types a path at `aeolus tail` thereby lets a container read."""

import glob
import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from aeolus_sandbox.capabilities import ReadLogs
from aeolus_sandbox.errors import LogPathRefused
from aeolus_sandbox.tools.log_tailer.paths import MAX_LINKS

_LOOKED_AT: Final = 1000
"""How many files of a pattern are looked at for their groups and for where links lead."""


def access_to(paths: Sequence[str], groups: Sequence[str] | None) -> ReadLogs:
    """Return the grant for these absolute paths: their folders, and the folders that links among them lead to.

    Args:
        paths: Files or patterns.
        groups: Whose files may be read beside those that everybody may; None: the groups of the files that the caller
            can read by being in them.

    Raises:
        LogPathRefused: All of them lie in the root folder.
    """
    files = [file for path in paths for file in _files_of(path)]
    folders = [
        *map(_literal_folder, paths),
        *(folder for file in files for folder in _folders_of_links(file)),
    ]
    roots = dict.fromkeys(folder for folder in folders if folder != "/")
    if not roots:
        msg = f"{paths[0]!r} lies in the root folder, all of which would be shown to the container"
        raise LogPathRefused(msg)
    return ReadLogs(roots=tuple(roots), groups=tuple(groups if groups is not None else _groups_of(files)))


def is_pattern(path: str) -> bool:
    """Return whether a path is a pattern: one that names a file is none."""
    return glob.has_magic(path) and not os.path.lexists(path)


def _files_of(path: str) -> Iterator[str]:
    if not is_pattern(path):
        return iter([path])
    found = glob.iglob(path, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute one
    return itertools.islice(found, _LOOKED_AT)


def _folders_of_links(path: str) -> Iterator[str]:
    """Yield the folder of what a path leads to, and those of the links on its way, as the tailer will look at them."""
    folder, name = os.path.split(path)
    at, todo, links = os.path.realpath(folder), [name], 0
    while todo:
        name = todo.pop()
        if name == "..":
            at = at.rpartition("/")[0]
        if name in {"", ".", ".."}:
            continue
        place = f"{at.rstrip('/')}/{name}"
        if not os.path.islink(place):  # noqa: PTH114
            at = place
            continue
        links += 1
        if links > MAX_LINKS:
            return
        yield at or "/"
        target = os.readlink(place)  # noqa: PTH115 - the text of the link, as it is
        at = "" if target.startswith("/") else at
        todo += target.split("/")[::-1]
    yield os.path.dirname(at)  # noqa: PTH120


def _literal_folder(path: str) -> str:
    """Return the folder of a file, or the one that all matches of a pattern are below."""
    folder = Path(path).parent
    while glob.has_magic(str(folder)) and not folder.exists():
        folder = folder.parent
    return str(folder.resolve())


def _groups_of(files: Iterable[str]) -> list[int]:
    own = {*os.getgroups(), os.getegid()}
    found: set[int] = set()
    for file in files:
        try:
            status = os.stat(file)  # noqa: PTH116
        except OSError:
            continue
        by_group_alone = status.st_mode & stat.S_IRGRP and not status.st_mode & stat.S_IROTH
        if by_group_alone and status.st_gid and (os.geteuid() == 0 or status.st_gid in own):
            found.add(status.st_gid)
    return sorted(found)
