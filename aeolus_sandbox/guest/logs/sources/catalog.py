"""What is known of the files: each generation by what it is, the lanes in which they are read, and what is told."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aeolus_sandbox.guest.logs.frames import Notice, Tail
from aeolus_sandbox.guest.logs.sources.contents import HEAD_BYTES, Content, is_too_short, kind_of
from aeolus_sandbox.guest.logs.sources.descriptors import OpenFiles
from aeolus_sandbox.guest.logs.sources.generations import Generation, Lane, Queue
from aeolus_sandbox.guest.logs.sources.paths import FileKey, HostPaths
from aeolus_sandbox.guest.logs.sources.relatives import stem
from aeolus_sandbox.guest.logs.sources.splitting import LineSplitter

MOST_DONE: Final = 256
"""How many files of one lane are remembered after they were done with."""


@dataclass(eq=False, slots=True)
class Catalog:
    """All files of one tail."""

    request: Tail
    host: HostPaths
    open_files: OpenFiles
    clock: Callable[[], float]
    tell: Callable[[Notice], None]
    by_key: dict[FileKey, Generation] = field(default_factory=dict)
    lanes: dict[str, Lane] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    leaving: dict[Generation, None] = field(default_factory=dict)
    """Those whose name is gone or another's, and those whose end is waited for."""
    paths: dict[str, None] = field(default_factory=dict)
    """The names of all files that were found."""
    nuls: dict[Generation, tuple[int, int]] = field(default_factory=dict)
    """Offset and count of zero bytes that were left out and not told yet."""
    rotations: int = 0
    waiting: dict[Generation, None] = field(default_factory=dict)
    """Those that no descriptor is left for."""
    failing: dict[Generation, None] = field(default_factory=dict)
    """Those that cannot be opened, which has not been told yet."""
    limited: dict[Generation, None] = field(default_factory=dict)
    """Those of which that was told."""

    def notice(
        self, kind: str, text: str, path: str, *, offset: int | None = None, count: int | None = None
    ) -> None:
        """Tell something about a file."""
        self.tell(Notice(self.request.op, kind, text, path, offset, count))

    def lane_of(self, path: str) -> Lane:
        """Return where files of a name, and what is rotated away from it, are read."""
        return self.lanes.setdefault(stem(path), Lane())

    def make(self, path: str, where: str, key: FileKey, *, offset: int = 0) -> Generation:
        """Return a new generation, which is in no lane yet."""
        generation = Generation(path, where, key, self.splitter(offset), Content(offset))
        generation.active_at = self.clock()
        generation.is_final = not self.request.follow
        splitter = generation.splitter
        splitter.on_nuls = lambda at, count: self._note_nuls(generation, at, count)
        return generation

    def splitter(self, offset: int) -> LineSplitter:
        """Return what splits a file's lines from an offset on."""
        keeps_nuls = self.request.format == "raw"
        return LineSplitter(offset=offset, max_line_bytes=self.request.max_line_bytes, keeps_nuls=keeps_nuls)

    def add(self, generation: Generation, *, after: Generation | None = None) -> None:
        """Put a generation into its lane, at the end or behind another one, and let it be read."""
        lane = self.lane_of(generation.path)
        followed = lane.generations
        at = followed.index(after) + 1 if after is not None and after in followed else len(followed)
        lane.generations.insert(at, generation)
        self.by_key[generation.key] = generation
        self.paths[generation.path] = None
        self.open_files.hold(generation)
        self.glimpse(generation)
        self.wake(generation)
        self._prune(lane)

    def glimpse(self, generation: Generation) -> None:
        """Learn how a file begins that has not had its turn yet, so that it is known should it be truncated first."""
        fd = self.open_files.held(generation)
        if fd is None or generation.is_begun or generation.file_head:
            return
        head = os.pread(fd, HEAD_BYTES, 0)
        if not is_too_short(head) and kind_of(head) == "plain":
            generation.file_head = generation.head = head

    def wake(self, generation: Generation) -> None:
        """Let a file be read."""
        if generation.is_gone and generation.is_done:
            return
        generation.is_ready = True
        generation.is_done = False
        self.queue.add(self.lane_of(generation.path))

    def rest(self, generation: Generation) -> None:
        """Let nothing more be read of a file until it is woken."""
        generation.is_ready = False
        generation.is_drained = True
        if self.waiting:
            other = next(iter(self.waiting))
            del self.waiting[other]
            self.wake(other)

    def wait_for_descriptor(self, generation: Generation) -> None:
        """Let a file wait until another one was read to its end and can be closed."""
        generation.is_ready = False
        self.waiting[generation] = None
        if generation not in self.limited and not any(each.is_ready for each in self.open_files):
            self.limited[generation] = None
            text = f"{generation.path} is not followed for now: the limit of open files is reached"
            self.notice("limit", text, generation.path)

    def retry(self) -> None:
        """Let the files be tried again that no descriptor was left for, or that could not be opened."""
        again = [*self.waiting, *self.failing]
        self.waiting, self.failing = {}, {}
        for generation in again:
            self.wake(generation)

    def finish(self, generation: Generation) -> None:
        """Be done with a file; should it grow after all, it goes on."""
        self.rest(generation)
        generation.is_done = True
        self.leaving.pop(generation, None)
        self.failing.pop(generation, None)
        self.open_files.close(generation)

    def forget(self, generation: Generation) -> None:
        """Forget a file, of which nothing was given or which is another one's copy."""
        self.finish(generation)
        generation.is_gone = True
        if self.by_key.get(generation.key) is generation:
            del self.by_key[generation.key]
        lane = self.lane_of(generation.path)
        if generation in lane.generations:
            lane.generations.remove(generation)

    def become(self, generation: Generation, key: FileKey, where: str) -> None:
        """Let a generation be another file: the one with a copy of it."""
        known = self.by_key.get(key)
        if known is not None and known is not generation:
            self.forget(known)
        if key != generation.key:
            generation.replaces = generation.key
        generation.key, generation.where = key, where
        self.by_key[key] = generation

    def tell_nuls(self, generation: Generation) -> None:
        """Tell of the zero bytes that were left out of a block."""
        offset, count = self.nuls.pop(generation, (0, 0))
        if count:
            self.notice(
                "nuls", f"{count} zero bytes were left out", generation.path, offset=offset, count=count
            )

    def _note_nuls(self, generation: Generation, offset: int, count: int) -> None:
        first, before = self.nuls.get(generation, (offset, 0))
        self.nuls[generation] = first, before + count

    def _prune(self, lane: Lane) -> None:
        done = [each for each in lane.generations if each.is_done]
        for generation in done[: max(0, len(done) - MOST_DONE)]:
            lane.generations.remove(generation)
            if self.by_key.get(generation.key) is generation:
                del self.by_key[generation.key]
