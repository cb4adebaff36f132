"""One file's content through its life: found, read, left by its name, read to its end, and let go."""

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from aeolus_sandbox.guest.logs.frames import FilePosition
from aeolus_sandbox.guest.logs.lines import Block
from aeolus_sandbox.guest.logs.sources.contents import HEAD_BYTES, Content, head_hash
from aeolus_sandbox.guest.logs.sources.paths import FileKey
from aeolus_sandbox.guest.logs.sources.splitting import LineSplitter, Split


def state_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return what differs when a file was written to: size, and times of the last write and change."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


@dataclass(eq=False, slots=True)
class Generation:
    """A file under a name that others may have had before it and will have after it."""

    path: str
    """The name under which its lines are given."""
    where: str
    """Where it really was when it was last seen."""
    key: FileKey
    splitter: LineSplitter
    content: Content = field(default_factory=Content)
    replaces: FileKey | None = None
    """The file that this one goes on for."""
    head: bytes = b""
    """The first bytes of what is in it, as far as they are known."""
    file_head: bytes = b""
    """The first bytes of the file itself, which differ where it is compressed."""
    tail: bytes = b""
    """The last bytes that were read."""
    seen: tuple[int, int, int] = (0, 0, 0)
    """Size, and times of the last write and change in nanoseconds, at the last look."""
    tail_lines: int | None = None
    """How many of the lines that were there when it was found to begin with; None: all."""
    found_bytes: int = 0
    """Its size when it was found."""
    left_at: float | None = None
    """When its name was seen to be gone or another's."""
    active_at: float = 0.0
    """When it was last seen to change."""
    is_begun: bool = False
    """Whether it is known what kind of file it is and where to read from."""
    is_ready: bool = False
    """Whether there may be something to read."""
    is_drained: bool = False
    """Whether its end was met since it was found or left: its successors wait for that."""
    is_final: bool = False
    """Whether its next end is the last."""
    is_done: bool = False
    is_passed: bool = False
    """Whether nothing of it is read: it is a copy, or of a kind that is not read."""
    is_gone: bool = False
    """Whether there is no file any more of which it is."""
    is_rested: bool = False
    """Whether it has not grown for a while, although its content has no end."""
    is_missed: bool = False
    """Whether its name was another's already when it was found."""
    is_counted: bool = False
    """Whether it was counted as one that a name went to."""
    failed_at: float | None = None
    """Since when it cannot be opened."""
    is_failure_told: bool = False
    served: int = 0
    """When its turn was, in turns."""

    @property
    def is_readable(self) -> bool:
        """Whether what it has read can be compared with another file."""
        return self.is_begun and not self.is_passed and not self.is_gone

    @property
    def is_reading(self) -> bool:
        """Whether its content comes next: it is looked at before only where it is not."""
        return self.is_begun and not self.is_passed

    def is_replaced(self, fd: int) -> bool:
        """Return whether the file holds something else by now; its known beginning grows when it does not."""
        head = os.pread(fd, HEAD_BYTES, 0)
        if not head.startswith(self.file_head) or os.fstat(fd).st_size < self.content.file_offset:
            return True
        if len(head) > len(self.file_head):
            self.file_head = head
            if not self.content.is_compressed:
                self.head = head
        return False

    def take(self, data: bytes) -> Split | None:
        """Go on behind what was read, and return the lines that it ends."""
        if self.content.is_compressed and self.content.offset < HEAD_BYTES:
            self.head = (self.head[: self.content.offset] + data)[:HEAD_BYTES]
        self.content.advance(data)
        self.tail = data[-HEAD_BYTES:] if len(data) >= HEAD_BYTES else (self.tail + data)[-HEAD_BYTES:]
        return self.splitter.feed(data)

    def position(self, offset: int | None = None) -> FilePosition:
        """Return how far it was handed out, or the position of an offset of it."""
        handed = self.splitter.line_start
        return FilePosition(
            path=self.path,
            device=self.key.device,
            inode=self.key.inode,
            offset=handed if offset is None else offset,
            head_bytes=len(self.head),
            head_hash=head_hash(self.head),
            done=self.is_done and offset in (None, handed),
            replaces=self.replaces,
        )


class ReadBlock(Block, kw_only=True):
    """A block that knows where it is from."""

    generation: Generation


@dataclass(eq=False, slots=True)
class Lane:
    """Files that are read one after the other: what has or had one name, and its history."""

    generations: list[Generation] = field(default_factory=list)
    """From the oldest."""
    is_queued: bool = False
    turns: int = 0

    def before(self, generation: Generation) -> Iterator[Generation]:
        """Yield those that are older than one of them."""
        for each in self.generations:
            if each is generation:
                return
            yield each

    def positions(self) -> list[FilePosition]:
        """Return how far each file was handed out; not of those that another one goes on for."""
        gone_on: dict[FileKey, int] = {}
        found: list[FilePosition] = []
        for each in reversed(self.generations):
            handed = each.splitter.line_start
            if not each.is_gone and handed > gone_on.get(each.key, -1):
                found.append(each.position())
            if each.replaces is not None:
                gone_on[each.replaces] = handed
        return found[::-1]

    def next(self) -> Generation | None:
        """Return whose turn it is.

        Those that were drained once take turns; one that was not must be, before those after it begin. So must one that
        was empty until now: those after it may be copies of it.
        """
        best: Generation | None = None
        for generation in self.generations:
            if generation.is_ready and (best is None or generation.served < best.served):
                best = generation
            if not generation.is_drained or (generation.is_ready and not generation.is_begun):
                break
        if best is not None:
            self.turns += 1
            best.served = self.turns
        return best


@dataclass(eq=False, slots=True)
class Queue:
    """The lanes in which there may be something to read, in turns."""

    lanes: deque[Lane] = field(default_factory=deque)

    def add(self, lane: Lane) -> None:
        """Give a lane its turn, unless it has one already."""
        if not lane.is_queued:
            lane.is_queued = True
            self.lanes.append(lane)

    def take(self) -> Lane | None:
        """Return the lane whose turn it is."""
        if not self.lanes:
            return None
        lane = self.lanes.popleft()
        lane.is_queued = False
        return lane
