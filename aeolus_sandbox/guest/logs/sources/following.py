"""Log files as they are found, followed through rotation and truncation, and read block by block.

`LogFiles` is what the tailer uses. Beyond what it was asked to be: it takes a `clock` (monotonic seconds) for the grace
periods, and `note_changes` looks at all files when no event is there to be read, or `poll_s` after the last such look.
"""

import time
from collections.abc import Callable

from aeolus_sandbox.guest.logs.frames import FilePosition, Notice, Tail
from aeolus_sandbox.guest.logs.lines import Block
from aeolus_sandbox.guest.logs.sources.catalog import Catalog
from aeolus_sandbox.guest.logs.sources.descriptors import OpenFiles
from aeolus_sandbox.guest.logs.sources.generations import ReadBlock
from aeolus_sandbox.guest.logs.sources.names import Name, Names
from aeolus_sandbox.guest.logs.sources.paths import HostPaths
from aeolus_sandbox.guest.logs.sources.reading import Reader
from aeolus_sandbox.guest.logs.sources.resuming import resume
from aeolus_sandbox.guest.logs.sources.rotation import Rotation
from aeolus_sandbox.guest.logs.sources.watch import Change, FolderWatch, WatchFailed


class LogFiles:
    """The log files of one request; nothing blocks, and nothing raises whatever the files are."""

    def __init__(
        self,
        request: Tail,
        *,
        root: str = "/host",
        notify: Callable[[Notice], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Find the files that are there; `notify` is told what is to be known of them, from any call.

        Raises:
            OSError: The root is not there.
        """
        host = HostPaths(root, request.mounts)
        self._catalog = Catalog(request, host, OpenFiles(host), clock, notify)
        self._rotation = Rotation(self._catalog)
        self._reader = Reader(self._catalog, self._rotation)
        self._names = Names(self._catalog, self._rotation)
        self._watch: FolderWatch | None = None
        self._start_watch()
        resume(self._catalog, self._names)
        self._names.leave_earlier()
        self._look()

    @property
    def files(self) -> list[str]:
        """The names of all files that were found, in their order."""
        return list(self._catalog.paths)

    @property
    def rotations(self) -> int:
        """How many times a file was rotated or truncated."""
        return self._catalog.rotations

    @property
    def bytes_read(self) -> int:
        """How many bytes of lines were read, unpacked where they were compressed."""
        return self._reader.bytes_read

    @property
    def is_finished(self) -> bool:
        """Whether everything was read, and nothing is followed."""
        return not self._catalog.request.follow and not self._catalog.queue.lanes

    def read(self, max_bytes: int) -> Block | None:
        """Return the next block of lines, from the files in turn; None: all that was noted was read.

        A block is of about `max_bytes` at most, or of one line.
        """
        queue = self._catalog.queue
        while (lane := queue.take()) is not None:
            generation = lane.next()
            if generation is None:
                continue
            block = self._reader.step(generation, max_bytes)
            queue.add(lane)
            if block is not None:
                return block
        return None

    def changes_fd(self) -> int | None:
        """Return what is readable when something may have changed; None: only time tells."""
        return None if self._watch is None else self._watch.fd

    def note_changes(self) -> None:
        """Look at what has changed; to be called when `changes_fd` is readable, and every `poll_s`."""
        changes = None if self._watch is None else self._watch.read()
        if changes:
            self._note(changes)
        if not changes or self._catalog.clock() - self._looked_at >= self._catalog.request.poll_s:
            self._look()

    def positions(self) -> list[FilePosition]:
        """Return how far every known file was handed out by `read`, older files of a name first."""
        return [position for lane in self._catalog.lanes.values() for position in lane.positions()]

    def position_of(self, block: Block) -> FilePosition:
        """Return the position behind a block that `read` has returned.

        Raises:
            TypeError: It is from elsewhere.
        """
        if not isinstance(block, ReadBlock):
            raise TypeError("not a block of these files")  # noqa: EM101
        return block.generation.position(block.ends[-1])

    def close(self) -> None:
        """Close all files."""
        self._catalog.open_files.close_all()
        self._catalog.host.close()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _start_watch(self) -> None:
        request = self._catalog.request
        if request.follow and request.uses_events:
            try:
                self._watch = FolderWatch()
            except WatchFailed as failure:
                self._fall_back(failure)

    def _fall_back(self, failure: WatchFailed) -> None:
        text = f"changes are looked for every {self._catalog.request.poll_s:g} s: {failure}"
        self._catalog.tell(Notice(self._catalog.request.op, "polling", text))
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _look(self) -> None:
        """Look at everything."""
        self._looked_at = self._catalog.clock()
        self._catalog.retry()
        self._names.look_at_all()
        self._rotation.look()
        if self._watch_folders():  # what has happened before they were watched
            self._names.look_at_all()

    def _watch_folders(self) -> bool:
        """Watch the folders that are not watched yet; return whether there were some."""
        watch, added = self._watch, False
        for folder in list(self._names.folders):
            if watch is None:
                break
            if folder in watch:
                continue
            try:
                with self._catalog.host.folder(folder) as (folder_fd, _):
                    watch.add(folder, folder_fd)
                    added = True
            except WatchFailed as failure:
                self._fall_back(failure)
                return False
            except OSError:
                del self._names.folders[folder]  # it is found again when it is there
        return added

    def _note(self, changes: list[Change]) -> None:
        """Look at what the events are about: known names before new ones, which may be copies of those."""
        checks: dict[Name, None] = {}
        fresh: dict[str, None] = {}
        has_unknown = has_folder = False
        for change in changes:
            names = self._names.at((change.folder, change.name))
            path = f"{change.folder.rstrip('/')}/{change.name}"
            if change.is_content and names:
                self._wake(names)
            else:
                checks.update(dict.fromkeys(names))
            if self._names.may_be_new(path):
                fresh[path] = None
            has_unknown = has_unknown or not names
            has_folder = has_folder or change.is_folder
        self._names.check(list(checks))
        if has_unknown:
            self._rotation.look()
        if fresh:
            self._names.add(fresh)
        if has_folder:
            self._names.discover()
        self._watch_folders()

    def _wake(self, names: list[Name]) -> None:
        for name in names:
            generation = self._catalog.by_key.get(name.key) if name.key is not None else None
            if generation is not None:
                generation.active_at = self._catalog.clock()
                self._catalog.glimpse(generation)
                self._catalog.wake(generation)
