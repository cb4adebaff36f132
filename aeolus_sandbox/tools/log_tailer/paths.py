"""Which log files a session may read, and which folders of the host its container must see for that.

Boundary: paths are a model's input. Where they lead is found out here, before anything starts, and again by the guest
whenever it opens a file; what it can open at all, the mounts decide.
"""

import glob
import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aeolus_sandbox.capabilities import ReadLogs, is_inside
from aeolus_sandbox.errors import ConfigurationError, LogPathRefused
from aeolus_sandbox.guest.logs.frames import TailPath
from aeolus_sandbox.hardening import is_mountable
from aeolus_sandbox.tools.log_tailer.folders import LogFolders, pinned

MAX_LINKS: Final = 40
"""How many symlinks one path may lead through, as in the kernel (path_resolution(7))."""
MAX_MOUNTS: Final = 64
"""How many folders are mounted; where there would be more, whole roots are."""
_MAX_MATCHES: Final = 10_000
"""How many of the files that match a pattern now are looked at for links that lead elsewhere."""
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, slots=True)
class LogPaths:
    """What to read, and what must be mounted for it."""

    paths: tuple[TailPath, ...]
    """The paths, their folders without links."""
    folders: LogFolders


def find_paths(asked: Sequence[str], access: ReadLogs, *, is_glob: bool | None, follow: bool) -> LogPaths:
    """Return what to read and to mount for some paths; it looks at the host's files, and so blocks.

    Args:
        asked: The paths, as the caller gave them.
        access: What may be read.
        is_glob: Whether they are patterns; None: those with `*`, `?` or `[` that name no file are.
        follow: Whether a file that is not there is waited for.

    Raises:
        LogPathRefused: A path leads out of what may be read, or to what is no file.
        ConfigurationError: There is no such file, or no such folder to wait in.
    """
    if not access.roots:
        msg = (
            'no folder was granted to read logs in: pass grants=Grants.of(ReadLogs(roots=["/var/log"]), ...)'
        )
        raise LogPathRefused(msg)
    search = _Search(access, follow=follow)
    paths = [search.add(path, is_glob=is_glob) for path in asked]
    return LogPaths(paths=tuple(dict.fromkeys(paths)), folders=pinned(search.mounts()))


class _Search:
    """The paths of one input, and the folders that they need."""

    def __init__(self, access: ReadLogs, *, follow: bool) -> None:
        self._roots = tuple(dict.fromkeys(os.path.realpath(root) for root in access.roots))
        self._follow = follow
        self._needed: dict[str, None] = {}

    def add(self, asked: str, *, is_glob: bool | None) -> TailPath:
        path = os.path.join(os.getcwd(), asked)  # noqa: PTH109, PTH118 - a Path would lose `.` and a last slash
        _check_text(path)
        if is_glob or (is_glob is None and glob.has_magic(path) and not os.path.lexists(path)):
            return TailPath(self._pattern(asked, path), is_pattern=True)
        return TailPath(self._file(asked, path))

    def mounts(self) -> list[str]:
        """Return the folders to mount."""
        if len(self._needed) > MAX_MOUNTS:
            return list(dict.fromkeys(root for folder in self._needed if (root := self._root_of(folder))))
        return list(self._needed)

    def _file(self, asked: str, path: str) -> str:
        folder, name = os.path.split(path)
        if name in {"", ".", ".."} or self._is_granted_folder(path):
            raise _refused(asked, "it is a folder: give its files, or a pattern")
        folder = self._folder(asked, folder)
        path = os.path.join(folder, name)  # noqa: PTH118
        target, through = self._trail(asked, path)
        for place in (*through, os.path.dirname(target)):  # noqa: PTH120
            if self._root_of(place) is None:
                raise self._outside(asked, target, place)
        self._check_file(asked, target)
        self._need(folder, through, target)
        return path

    def _pattern(self, asked: str, path: str) -> str:
        parts = path.split("/")
        literal = list(itertools.takewhile(lambda part: not glob.has_magic(part), parts[:-1]))
        rest = "/".join(parts[len(literal) :])
        if {"", ".", ".."} & set(rest.split("/")):
            raise _refused(asked, "what follows the first `*`, `?` or `[` must be plain names")
        folder = self._folder(asked, "/".join(literal) or "/")
        self._need(folder)
        for match in self._matches(rest, folder):
            try:
                target, through = self._trail(asked, os.path.join(folder, match))  # noqa: PTH118
            except LogPathRefused:
                continue  # the guest says so, as of a link that leads out
            self._need(folder, through, target)
        return f"{folder}/{rest}"

    def _matches(self, rest: str, folder: str) -> Iterator[str]:
        return itertools.islice(glob.iglob(rest, root_dir=folder, recursive=True), _MAX_MATCHES)  # noqa: PTH207

    def _folder(self, asked: str, folder: str) -> str:
        """Return where a folder really is, which must be inside a root."""
        real = os.path.realpath(folder)
        if self._root_of(real) is None:
            raise self._outside(asked, real, real)
        if not os.path.isdir(real):  # noqa: PTH112
            msg = f"{asked!r} cannot be read: there is no folder {real!r}"
            raise ConfigurationError(msg)
        return real

    def _trail(self, asked: str, path: str) -> tuple[str, list[str]]:
        """Return where a path leads, and the folders in which the links on its way lie."""
        at, through, todo = "", list[str](), path.split("/")[::-1]
        while todo:
            name = todo.pop()
            if name == "..":
                at = at.rpartition("/")[0]
            if name in {"", ".", ".."}:
                continue
            target = _link(f"{at}/{name}")
            if target is None:
                at = f"{at}/{name}"
                continue
            through.append(at or "/")
            if len(through) > MAX_LINKS:
                raise _refused(asked, f"it leads through more than {MAX_LINKS} links")
            at = "" if target.startswith("/") else at
            todo.extend(target.split("/")[::-1])
        return at or "/", through

    def _check_file(self, asked: str, path: str) -> None:
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            if self._follow:
                return
            msg = f"there is no file {asked!r}: with follow=True it is waited for"
            raise ConfigurationError(msg) from None
        except OSError as error:
            raise _refused(asked, f"it cannot be looked at: {error.strerror}") from error
        if not stat.S_ISREG(mode):
            raise _refused(asked, f"it is {_KINDS.get(stat.S_IFMT(mode), 'no file')}, and not a regular file")

    def _need(self, folder: str, through: Iterable[str] = (), target: str | None = None) -> None:
        """Note what must be mounted: the folder, those of files that lie deeper, and roots that links lead to.

        Where a link leads later cannot be known, so the whole root that it leads to now is shown.
        """
        self._needed[folder] = None
        for place in (*through, *(() if target is None else (os.path.dirname(target),))):  # noqa: PTH120
            needed = place if is_inside(place, folder) else self._root_of(place)
            if needed is not None and os.path.isdir(needed):  # noqa: PTH112
                self._needed[needed] = None

    def _root_of(self, path: str) -> str | None:
        """Return the widest granted root that a path is inside of, or None where it is in none."""
        roots = [root for root in self._roots if is_inside(path, root)]
        return min(roots, key=len) if roots and is_mountable(path) else None

    def _is_granted_folder(self, path: str) -> bool:
        real = os.path.realpath(path)
        return self._root_of(real) is not None and os.path.isdir(real)  # noqa: PTH112

    def _outside(self, asked: str, target: str, place: str) -> LogPathRefused:
        way = "" if is_inside(target, place) else f" through {place!r}"
        return _refused(
            asked,
            f"it leads to {target!r}{way}, outside the folders that may be read: {', '.join(self._roots)}",
        )


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - the text of the link, as it is
    except OSError:  # no link, or nothing is there
        return None


def _check_text(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        msg = f"{path!r} cannot be read: its name is not UTF-8"
        raise ConfigurationError(msg) from error


def _refused(asked: str, why: str) -> LogPathRefused:
    return LogPathRefused(f"{asked!r} may not be read: {why}")
