"""What happens to a file whose name goes to another one, that is truncated, or that is gone."""

import math
import os
from contextlib import suppress
from typing import Final

from aeolus_sandbox.guest.logs.sources.bystanders import Bystanders
from aeolus_sandbox.guest.logs.sources.catalog import Catalog
from aeolus_sandbox.guest.logs.sources.contents import HEAD_BYTES
from aeolus_sandbox.guest.logs.sources.generations import Generation, state_of
from aeolus_sandbox.guest.logs.sources.paths import FileKey
from aeolus_sandbox.guest.logs.sources.relatives import Relative, age_of, continued_in, relatives

DELETED_S: Final = 2.0
"""How long a deleted file is held after its last byte."""
RENAMED_S: Final = 60.0
"""How long a renamed one is: its writer may go on until it is told to reopen."""
REST_S: Final = 2.0
"""How long a compressed file without an end must not have grown to be taken for one that was cut."""


class Rotation:
    """Sees files through their rotation."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.bystanders = Bystanders(catalog.host)

    def count(self, generation: Generation) -> None:
        """Count a rotation, or a truncation, by the file that began with it."""
        if not generation.is_counted:
            generation.is_counted = True
            self._catalog.rotations += 1

    def leave(self, generation: Generation) -> None:
        """Drain a file whose name is gone or another's, before its successor begins."""
        if generation.left_at is not None or generation.is_gone:
            return
        generation.left_at = self._catalog.clock()
        self._catalog.leaving[generation] = None
        if not generation.is_done:
            generation.is_drained = False
            self._catalog.open_files.hold(generation)
            self._catalog.wake(generation)

    def come_back(self, generation: Generation) -> None:
        """Follow a file again that has its name again."""
        generation.left_at = None
        generation.is_final = not self._catalog.request.follow
        self._catalog.leaving.pop(generation, None)

    def has_been_truncated(self, generation: Generation) -> bool:
        """Look whether an open file holds something else by now, and see to it."""
        fd = self._catalog.open_files.held(generation)
        if fd is None or not generation.file_head or not generation.is_replaced(fd):
            return False
        self.truncate(generation)
        return True

    def truncate(self, generation: Generation) -> None:
        """Begin a file anew that was truncated; what was not read yet is read first, where a copy has it."""
        catalog = self._catalog
        successor = catalog.make(generation.path, generation.where, generation.key)
        successor.seen = generation.seen
        catalog.open_files.hand_over(generation, successor)
        if not generation.is_passed:
            self.count(successor)
            offset = generation.content.offset
            catalog.notice("truncated", f"{generation.path} was truncated", generation.path, offset=offset)
        catalog.add(successor, after=generation)
        if generation.left_at is not None:
            self.leave(successor)
        catalog.leaving.pop(generation, None)
        generation.is_final, generation.is_drained = True, False
        if not generation.is_passed and self._move_to_copy(generation):
            self.follow_missed(generation, successor.where, successor.key)
        else:
            self._drop(generation)
        catalog.wake(generation)

    def give_up_partial(self, generation: Generation) -> None:
        """Forget the line that has no end yet: another file has it whole."""
        partial = generation.splitter
        generation.splitter = self._catalog.splitter(partial.line_start)
        generation.splitter.on_nuls = partial.on_nuls

    def look(self) -> None:
        """Look at the files that were left or wait for their end, and let go of those that have rested."""
        now = self._catalog.clock()
        for generation in list(self._catalog.leaving):
            fd = self._catalog.open_files.held(generation)
            status = None
            if fd is not None:
                status = os.fstat(fd)
                self.see(generation, status)
            self._let_go(generation, status, now - max(generation.active_at, generation.left_at or 0.0))

    def see(self, generation: Generation, status: os.stat_result) -> None:
        """Let a file be read if it is not what it was at the last look."""
        seen = state_of(status)
        if seen != generation.seen and not self.has_been_truncated(generation):
            if seen[:2] != generation.seen[:2]:
                generation.active_at = self._catalog.clock()
                generation.is_rested = False
            generation.seen = seen
            self._catalog.glimpse(generation)
            self._catalog.wake(generation)

    def has_older_lines(self, generation: Generation) -> bool:
        """Look whether there is more in a file that was left and that comes before this one; it is read first."""
        catalog, found = self._catalog, False
        for older in list(catalog.lane_of(generation.path).before(generation)) if catalog.leaving else ():
            fd = catalog.open_files.held(older) if older.left_at is not None and not older.is_done else None
            if fd is not None:
                self.see(older, os.fstat(fd))
                if older.is_ready:
                    older.is_drained = False
                    found = True
        return found

    def follow_missed(self, old: Generation, where: str, key: FileKey) -> None:
        """Follow the files that had a name between an old one and the one that is there now, the oldest first."""
        for relative in self._missed(old, where):
            if relative.key != key:
                known = self._catalog.by_key.get(relative.key)
                if known is not None:
                    self._catalog.forget(known)  # found under its rotated name, and not begun
                generation = self._catalog.make(old.path, relative.path, relative.key)
                generation.seen = state_of(relative.status)
                self._catalog.add(generation, after=old)
                generation.is_missed = True  # and counted when it begins, unless it is another one's copy
                generation.is_counted = known is not None and known.is_counted
                self.leave(generation)
                old = generation

    def _missed(self, old: Generation, where: str) -> list[Relative]:
        folder, place = os.path.dirname(where), None  # noqa: PTH120
        if (
            self._catalog.by_key.get(old.key) is old
        ):  # else it is deleted, and its inode may be another file's
            place = self._catalog.host.find_file(folder, old.key)
        # Files that were written within one tick of the clock are told apart by their numbers.
        since = (old.seen[1], age_of(place, 0).minus_number if place is not None else -math.inf)
        return [
            relative
            for relative in reversed(list(relatives(self._catalog.host, where, rotated_only=True)))
            if relative.age[:2] > since and self._is_unread(relative.key) and relative not in self.bystanders
        ]

    def _is_unread(self, key: FileKey) -> bool:
        known = self._catalog.by_key.get(key)
        return known is None or not known.is_begun

    def _let_go(self, generation: Generation, status: os.stat_result | None, quiet_s: float) -> None:
        if generation.left_at is None:
            if quiet_s >= REST_S and not generation.is_rested:
                generation.is_rested = True
                generation.is_final = generation.is_begun
                self._catalog.wake(generation)
            return
        is_deleted = status is not None and status.st_nlink == 0
        if status is None or quiet_s >= (DELETED_S if is_deleted else RENAMED_S):
            if is_deleted and self._catalog.by_key.get(generation.key) is generation:
                del self._catalog.by_key[generation.key]  # its inode may be another file's next
            generation.is_final = True
            self._catalog.wake(generation)

    def _move_to_copy(self, generation: Generation) -> bool:
        """Let a truncated file go on in its copy."""
        host, catalog = self._catalog.host, self._catalog
        for relative in relatives(host, generation.where):
            known = catalog.by_key.get(relative.key)
            if known is not None and known.is_readable:
                continue
            with suppress(OSError):
                fd = host.open(relative.path)
                content = continued_in(fd, generation.head, generation.tail, generation.content.offset)
                if content is None:
                    os.close(fd)
                    continue
                catalog.become(generation, relative.key, relative.path)
                catalog.open_files.put(generation, fd)
                generation.content = content
                generation.file_head = os.pread(fd, HEAD_BYTES, 0)
                generation.seen = state_of(os.fstat(fd))
                generation.left_at = catalog.clock()
                return True
        return False

    def _drop(self, generation: Generation) -> None:
        """Give what is held of a file whose content is nowhere any more."""
        generation.is_gone = True
        lost = generation.seen[0] - generation.content.offset
        if lost > 0 and not generation.is_passed and not generation.content.is_compressed:
            text = f"{lost} bytes of {generation.path} were lost before they were read"
            self._catalog.notice("lost", text, generation.path, offset=generation.content.offset, count=lost)
