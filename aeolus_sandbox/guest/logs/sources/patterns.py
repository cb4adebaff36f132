"""Patterns of paths: `*`, `?` and `[...]` within a name, `**` for any number of folders.

A name that begins with a dot is matched only by a part that begins with one; `**` enters no hidden folder and follows
no link, so that no loop of links is walked.
"""

import fnmatch
import re
from collections.abc import Iterator
from typing import Final

from aeolus_sandbox.guest.logs.sources.paths import Entry, HostPaths

MAX_DEPTH: Final = 32
"""How many folders `**` goes down."""
MAX_FOUND: Final = 10_000
"""How many files of one pattern are followed."""
_MAGIC: Final = re.compile(r"[*?\[]")


class PathPattern:
    """One pattern of paths."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._parts = _simplified([part for part in pattern.split("/") if part])
        self._matchers = [_Part(part) for part in self._parts]

    def matches(self, path: str) -> bool:
        """Return whether a path is one of those meant."""
        # All parts that may be next, after each name: so that several `**` cost no more than their product.
        places = _passing(self._matchers, {0})
        for name in path.split("/")[1:]:
            moved = (self._after(at, name) for at in places if at < len(self._parts))
            places = _passing(self._matchers, {at for at in moved if at is not None})
        return len(self._parts) in places

    def _after(self, at: int, name: str) -> int | None:
        """Return the part that is next when a name has been met at part `at`; None: it does not fit."""
        matcher = self._matchers[at]
        if matcher.is_any_depth:
            return None if name.startswith(".") else at
        return at + 1 if matcher.matches(name) else None

    def find(self, host: HostPaths) -> "Found":
        """Return the paths that match now, in the order of their names, and the folders that were looked through."""
        found = Found()
        self._walk(host, found, "", 0, 0)
        return found

    def _walk(self, host: HostPaths, found: "Found", folder: str, part: int, depth: int) -> None:
        matcher, is_last = self._matchers[part], part == len(self._parts) - 1
        if depth > MAX_DEPTH or len(found.paths) >= MAX_FOUND:
            found.is_cut = found.is_cut or len(found.paths) >= MAX_FOUND
            return
        if matcher.is_any_depth:
            for entry in self._entries(host, found, folder):
                if entry.is_folder and not entry.name.startswith("."):
                    self._walk(host, found, f"{folder}/{entry.name}", part, depth + 1)
            self._walk(host, found, folder, part + 1, depth)
        elif is_last:
            self._take(host, found, folder, matcher)
        elif not matcher.is_pattern:
            self._walk(host, found, f"{folder}/{matcher.text}", part + 1, depth)
        else:
            for entry in self._entries(host, found, folder):
                if (entry.is_folder or entry.is_link) and matcher.matches(entry.name):
                    self._walk(host, found, f"{folder}/{entry.name}", part + 1, depth)

    def _take(self, host: HostPaths, found: "Found", folder: str, matcher: "_Part") -> None:
        for entry in self._entries(host, found, folder):
            if not entry.is_folder and matcher.matches(entry.name) and len(found.paths) < MAX_FOUND:
                found.paths[f"{folder}/{entry.name}"] = None

    def _entries(self, host: HostPaths, found: "Found", folder: str) -> Iterator[Entry]:
        try:
            entries = host.list_folder(folder or "/")
        except PermissionError as error:
            found.unreadable[folder or "/"] = str(error.strerror)
            return
        except OSError:
            return  # it is gone by now, or was never a folder
        found.folders[folder or "/"] = None
        yield from sorted(entries)


class Found:
    """What a pattern found."""

    def __init__(self) -> None:
        self.paths: dict[str, None] = {}
        self.folders: dict[str, None] = {}
        self.unreadable: dict[str, str] = {}
        self.is_cut = False
        """Whether there are more than are followed."""


class _Part:
    def __init__(self, text: str) -> None:
        self.text = text
        self.is_any_depth = text == "**"
        self.is_pattern = _MAGIC.search(text) is not None
        self._search = re.compile(fnmatch.translate(text)).match

    def matches(self, name: str) -> bool:
        if name.startswith(".") and not self.text.startswith("."):
            return False
        return self._search(name) is not None


def _passing(parts: list[_Part], places: set[int]) -> set[int]:
    """Return the places with those that are reached when `**` stands for no folder."""
    return places | {at + 1 for at in places if at < len(parts) and parts[at].is_any_depth}


def _simplified(parts: list[str]) -> list[str]:
    """Return the parts without `**` twice in a row; at the end, `**` means every file below."""
    kept = [part for at, part in enumerate(parts) if part != "**" or parts[at - 1 : at] != ["**"]]
    return [*kept, "*"] if kept[-1:] == ["**"] else kept
