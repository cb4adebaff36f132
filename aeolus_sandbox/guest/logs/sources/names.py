"""The names that are followed: what is at each of them, and which new ones match the patterns."""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from aeolus_sandbox.guest.logs.sources.catalog import Catalog
from aeolus_sandbox.guest.logs.sources.generations import Generation, state_of
from aeolus_sandbox.guest.logs.sources.paths import (
    FileKey,
    Located,
    RefusedPath,
    can_be_said,
    check_regular,
    key_of,
)
from aeolus_sandbox.guest.logs.sources.patterns import Found, PathPattern
from aeolus_sandbox.guest.logs.sources.relatives import Age, Relative, age_of
from aeolus_sandbox.guest.logs.sources.rotation import Rotation

Entry = tuple[str, str]


@dataclass(eq=False, slots=True)
class Name:
    """One path that was asked for, or that matches a pattern."""

    path: str
    is_pattern: bool = False
    key: FileKey | None = None
    """The file that was there at the last look."""
    was_resumed: bool = False
    """Whether `key` is from an earlier run and its truncation was told already."""
    entries: tuple[Entry, ...] = ()
    """The entries of folders that decide what is there."""
    said: str = ""
    """What was last said of it, so that it is said once."""


class Names:
    """Looks at names."""

    def __init__(self, catalog: Catalog, rotation: Rotation) -> None:
        self.names: dict[str, Name] = {}
        self.folders: dict[str, None] = {}
        """The folders in which something may happen to them."""
        self._catalog = catalog
        self._rotation = rotation
        self._by_entry: dict[Entry, dict[Name, None]] = {}
        self._between: dict[str, None] = {}
        """The names that something was at and nothing is now."""
        self._said: set[str] = set()
        self._patterns: list[PathPattern] = []
        self._is_first = True
        for each in catalog.request.paths:
            if each.is_pattern:
                self._patterns.append(PathPattern(each.path))
            else:
                self.names.setdefault(each.path, Name(each.path))

    def is_wanted(self, path: str) -> bool:
        """Return whether a path was asked for."""
        return path in self.names or any(pattern.matches(path) for pattern in self._patterns)

    def leave_earlier(self) -> None:
        """Drain the files of a cursor whose names others have that were begun already."""
        for generation in list(self._catalog.by_key.values()):
            name = self.names.get(generation.path)
            if name is not None and name.key != generation.key and not generation.is_done:
                self._rotation.leave(generation)

    def look_at_all(self) -> None:
        """Look at all names, and for new ones."""
        self.check(list(self.names.values()))
        self.discover()
        if self._is_first and self._catalog.request.cursor:
            # Now what has come since the cursor is known, so that the rest beside it is history.
            for generation in list(self._catalog.by_key.values()):
                self._note_bystanders(generation.where)
        self._is_first = False

    def discover(self) -> None:
        """Look for new files that match the patterns."""
        for pattern in self._patterns:
            found = pattern.find(self._catalog.host)
            self.folders.update(found.folders)
            self._say_limits(pattern, found)
            self.add(path for path in found.paths if path not in self.names)

    def add(self, paths: Iterable[str]) -> None:
        """Follow new names."""
        fresh = [Name(path, is_pattern=True) for path in paths]
        self.names.update((name.path, name) for name in fresh)
        self.check(fresh)

    def at(self, entry: Entry) -> list[Name]:
        """Return the names that an entry of a folder decides."""
        return list(self._by_entry.get(entry, ()))

    def may_be_new(self, path: str) -> bool:
        """Return whether a path is not followed but matches a pattern."""
        return (
            path not in self.names
            and can_be_said(path)
            and any(each.matches(path) for each in self._patterns)
        )

    def check(self, names: list[Name]) -> None:
        """Look at what is at some names, at the older files first."""
        there: list[tuple[Age, Name, Located]] = []
        for name in names:
            located = self._locate(name)
            if located is not None and located.status is not None:
                there.append((age_of(name.path, located.status.st_mtime_ns), name, located))
        for _, name, located in sorted(there, key=lambda each: each[0]):
            if located.status is not None:
                self._found(name, located.status, "/".join(located.entries[-1]).replace("//", "/"))

    def _locate(self, name: Name) -> Located | None:
        try:
            located = self._catalog.host.look(name.path)
            self._note_entries(name, located.entries)
            if located.status is None:
                self._missing(name)
                return None
            check_regular(name.path, located.status)
        except RefusedPath as error:
            self._say(name, "refused", str(error))
        except OSError as error:
            self._say(name, "unreadable", f"{name.path} cannot be read: {error.strerror}")
        else:
            return located
        self._leave(name)
        return None

    def _note_entries(self, name: Name, entries: tuple[Entry, ...]) -> None:
        if entries == name.entries:
            return
        for entry in name.entries:
            decided = self._by_entry.get(entry, {})
            decided.pop(name, None)
            if not decided:
                self._by_entry.pop(entry, None)
        for entry in entries:
            self._by_entry.setdefault(entry, {})[name] = None
            self.folders[entry[0]] = None
        name.entries = entries

    def _missing(self, name: Name) -> None:
        generation = self._leave(name)
        if name.key is not None:
            self._between[name.path] = None
        if name.is_pattern:
            if generation is None or generation.is_done:
                self._forget(name)
        elif not self._catalog.request.follow:
            self._say(name, "gone", f"{name.path}: no such file")
        elif name.key is not None and (generation is None or generation.is_done):
            self._say(name, "gone", f"{name.path} is gone")

    def _forget(self, name: Name) -> None:
        self._note_entries(name, ())
        self.names.pop(name.path, None)
        self._between.pop(name.path, None)

    def _leave(self, name: Name) -> Generation | None:
        """Let go of what was at a name; return it."""
        generation = self._catalog.by_key.get(name.key) if name.key is not None else None
        if generation is not None and generation.path == name.path:
            self._rotation.leave(generation)
        return generation

    def _found(self, name: Name, status: os.stat_result, where: str) -> None:
        name.said = ""
        self._between.pop(name.path, None)
        key = key_of(status)
        generation = self._catalog.by_key.get(key)
        if generation is not None and key != name.key and not self._is_still(generation, where):
            generation = None
        if generation is None:
            self._begin(name, Relative(where, key, status))
            return
        if key != name.key:
            self._leave(name)
            name.key = key
        generation.where = where
        if generation.path == name.path and generation.left_at is not None and not generation.is_gone:
            self._rotation.come_back(generation)
        self._rotation.see(generation, status)

    def _is_still(self, generation: Generation, where: str) -> bool:
        """Return whether a known file that is not open is what it was, and not another one with its inode."""
        if self._catalog.open_files.held(generation) is not None or not generation.file_head:
            return True
        with suppress(OSError):
            fd = self._catalog.host.open(where)
            try:
                is_still = key_of(os.fstat(fd)) == generation.key and not generation.is_replaced(fd)
            finally:
                os.close(fd)
            if not is_still:
                del self._catalog.by_key[generation.key]
            return is_still
        return True

    def _begin(self, name: Name, found: Relative) -> None:
        """Follow a file that was not known."""
        catalog, old = self._catalog, self._leave(name) or self._last_at(name)
        follows_on = name.key is not None and not name.was_resumed
        if follows_on:
            catalog.notice("rotated", f"another file is at {name.path} now", name.path)
        elif not self._is_first:
            catalog.notice("appeared", f"{name.path} has appeared", name.path)
        if old is not None:
            self._rotation.follow_missed(old, found.path, found.key)
        if not (self._is_first and catalog.request.cursor):
            self._note_bystanders(found.path)
        name.key, name.was_resumed = found.key, False
        generation = catalog.make(name.path, found.path, found.key)
        generation.seen = state_of(found.status)
        catalog.add(generation)
        if follows_on:
            self._rotation.count(generation)
        if self._is_first and old is None:
            generation.tail_lines = catalog.request.tail_lines
            generation.found_bytes = found.status.st_size

    def _note_bystanders(self, where: str) -> None:
        if self._rotation.bystanders.are_known(where):
            return
        self._rotation.bystanders.note(where, between=tuple(self._between))

    def _last_at(self, name: Name) -> Generation | None:
        """Return what was at a name before it was deleted and let go of."""
        lane = self._catalog.lane_of(name.path)
        return next((each for each in reversed(lane.generations) if each.path == name.path), None)

    def _say(self, name: Name, kind: str, text: str) -> None:
        if name.said != text:
            name.said = text
            self._catalog.notice(kind, text, name.path)

    def _say_limits(self, pattern: PathPattern, found: Found) -> None:
        for folder, reason in found.unreadable.items():
            self._say_once("unreadable", f"{folder} cannot be listed: {reason}", folder)
        if found.is_cut:
            text = f"{pattern.pattern} matches too many files: only {len(found.paths)} are followed"
            self._say_once("limit", text, pattern.pattern)

    def _say_once(self, kind: str, text: str, path: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._catalog.notice(kind, text, path)
