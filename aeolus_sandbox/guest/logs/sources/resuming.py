"""Going on from the positions of an earlier run: each file is found again, wherever rotation has put it."""

import os
from contextlib import suppress
from typing import NamedTuple

from aeolus_sandbox.guest.logs.frames import FilePosition
from aeolus_sandbox.guest.logs.sources.catalog import Catalog
from aeolus_sandbox.guest.logs.sources.contents import HEAD_BYTES, Content, content_of, head_hash, kind_of
from aeolus_sandbox.guest.logs.sources.generations import state_of
from aeolus_sandbox.guest.logs.sources.names import Name, Names
from aeolus_sandbox.guest.logs.sources.paths import FileKey, key_of
from aeolus_sandbox.guest.logs.sources.relatives import relatives, stem


class _Again(NamedTuple):
    """A file that was found again."""

    path: str
    key: FileKey
    content: Content
    head: bytes
    tail: bytes
    file_head: bytes
    seen: tuple[int, int, int]


def resume(catalog: Catalog, names: Names) -> None:
    """Put the files of the request's cursor where they were."""
    wanted = [each for each in catalog.request.cursor if names.is_wanted(each.path)]
    resumptions = [_Resumption(catalog, names, position) for position in wanted]
    # What is still the same file is known first: no other position is taken for it.
    own = {each.key: each.position.offset for each in resumptions if each.find_own()}
    for resumption in resumptions:
        resumption.run(own)


class _Resumption:
    def __init__(self, catalog: Catalog, names: Names, position: FilePosition) -> None:
        self._catalog = catalog
        self.position = position
        self.key = FileKey(position.device, position.inode)
        is_pattern = position.path not in names.names
        self._name = names.names.setdefault(position.path, Name(position.path, is_pattern))
        self._at_name, self._where = self._look()
        self._own: _Again | None = None
        self._was_passed = position.done and position.offset > 0 and not position.head_bytes
        """Whether nothing of it is read, so that its offset is its size."""

    def find_own(self) -> bool:
        """Find the file by what it is, at its name or at one that rotation gives; return whether it still goes on."""
        place: str | None = self._where
        if self._at_name != self.key:
            place = self._catalog.host.find_file(os.path.dirname(self._where), self.key)  # noqa: PTH120
        if place is not None and place.startswith(stem(self._where)):
            again = self._verified(place)
            self._own = again if again is not None and again.key == self.key else None
        return self._own is not None

    def run(self, own: dict[FileKey, int]) -> None:
        """Go on with the file, or with what holds its content; `own` are the files of other positions, and how far."""
        again = self._own if self.key not in self._catalog.by_key else None
        is_left_over = False
        if again is None:
            again, is_left_over = self._find_alike(own)
        if again is not None:
            self._go_on(again)
        if not is_left_over and (again is None or again.key != self.key):
            self._tell(is_lost=again is None)

    def _tell(self, *, is_lost: bool) -> None:
        position, path = self.position, self.position.path
        if self._at_name == self.key and position.head_bytes:
            self._catalog.rotations += 1
            text = f"{path} was truncated since it was last read"
            self._catalog.notice("truncated", text, path, offset=position.offset)
            self._name.was_resumed = True
        elif is_lost and not position.done and position.head_bytes:
            text = f"what was last read of {path} at offset {position.offset} is nowhere any more"
            self._catalog.notice("lost", text, path, offset=position.offset)

    def _look(self) -> tuple[FileKey | None, str]:
        with suppress(OSError):
            located = self._catalog.host.look(self.position.path)
            where = "/".join(located.entries[-1]).replace("//", "/")
            return (key_of(located.status) if located.status is not None else None), where
        return None, self.position.path

    def _find_alike(self, own: dict[FileKey, int]) -> tuple[_Again | None, bool]:
        """Return the file that begins as this one did and is long enough.

        Where that is another position's, which has come as far, return that this position was left over.
        """
        host, where, is_left_over = self._catalog.host, self._where, False
        family = stem(where)
        beside = [*relatives(host, where), *(relatives(host, family) if family != where else ())]
        moved = host.find_file(os.path.dirname(where), self.key)  # noqa: PTH120
        for path in (where, *(each.path for each in beside), *([moved] if moved is not None else ())):
            again = self._verified(path)
            if again is not None and self.position.offset <= own.get(again.key, -1):
                is_left_over = True
            elif again is not None and again.key not in self._catalog.by_key:
                return again, False
        return None, is_left_over

    def _verified(self, path: str) -> _Again | None:
        position = self.position
        try:
            fd = self._catalog.host.open(path)
        except OSError:
            return None
        try:
            key = key_of(os.fstat(fd))
            if not position.head_bytes and key != self.key:
                return None
            content, head = (Content(), b"") if self._was_passed else content_of(fd)
            if len(head) < position.head_bytes:
                return None
            if position.head_hash and head_hash(head[: position.head_bytes]) != position.head_hash:
                return None
            before = content.skip_to(fd, position.offset)
            file_head = os.pread(fd, HEAD_BYTES, 0)
            return (
                None
                if before is None
                else _Again(path, key, content, head, before, file_head, state_of(os.fstat(fd)))
            )
        finally:
            os.close(fd)

    def _go_on(self, again: _Again) -> None:
        position = self.position
        generation = self._catalog.make(position.path, again.path, again.key, offset=position.offset)
        generation.content, generation.seen = again.content, again.seen
        generation.head, generation.tail, generation.file_head = again.head, again.tail, again.file_head
        generation.replaces = self.key if again.key != self.key else None
        generation.is_passed = self._was_passed or kind_of(again.file_head) not in ("plain", "gzip")
        generation.is_begun = bool(position.head_bytes) or self._was_passed
        self._catalog.add(generation)
        if position.done and again.seen[0] <= again.content.file_offset:  # it has not grown since
            self._catalog.finish(generation)
        self._name.key = again.key
