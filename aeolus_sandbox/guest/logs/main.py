"""The log tailer's guest program: log files in, frames out.

`aeolus-log-tailer` reads requests from its stdin and writes replies to its stdout (see `logs.frames`). It ends with 0
after `TailDone` or at the end of its input, 2 after a malformed request, and 4 after a fault of its own; the last two
are told in a `Fault`.

One thread: a block of lines is read, parsed and sent, then the requests are looked at. Nothing is read while as much
is under way as the host has allowed, so that a slow reader costs neither memory nor a stalled pipe.
"""

import os
import select
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from aeolus_sandbox.guest.frames import Fault, Frame, FrameError, LineSplitter, encode_frame
from aeolus_sandbox.guest.logs.batches import OutgoingLines
from aeolus_sandbox.guest.logs.frames import (
    MAX_NOTICES,
    WINDOW_BYTES,
    FilePosition,
    Lines,
    MountIdentity,
    Notice,
    Reached,
    Room,
    StopTail,
    Tail,
    TailDone,
    TailOpened,
    decode_log_request,
)
from aeolus_sandbox.guest.logs.lines import Block
from aeolus_sandbox.guest.logs.pipeline import Counts, FilePipeline
from aeolus_sandbox.guest.logs.selection import Selection
from aeolus_sandbox.guest.logs.sources.following import LogFiles

EXIT_OK: Final = 0
EXIT_MALFORMED: Final = 2
EXIT_FAULT: Final = 4
ROOT: Final = "/host"
"""Where the host's folders are mounted, each under its own path."""
_READ_BYTES: Final = 128 * 1024
"""How much is read at once: some of it fit into what may be under way, so that guest and host work side by side."""
_REACHED_EVERY_BYTES: Final = 4 * 1024 * 1024
"""How much of a file may be read without the host hearing of it where nothing is passed on."""
_MOST_FILES: Final = 10_000
"""How many files `TailDone` names."""
_MOST_POSITIONS: Final = 100_000
"""How many positions it holds: as many as the host takes."""


class HostGoneError(Exception):
    """The host has closed one of the two pipes."""


class Pipes:
    """The two pipes to the host: requests in, frames out."""

    def __init__(self, requests_fd: int, replies_fd: int) -> None:
        self.requests_fd = requests_fd
        self._replies_fd = replies_fd
        self._splitter = LineSplitter()
        self._requests: list[Tail | Room | StopTail] = []

    def take(self) -> list[Tail | Room | StopTail]:
        """Return the requests that have come; called when there is something to read.

        Raises:
            HostGoneError: None will come any more.
            FrameError: One is malformed.
        """
        data = os.read(self.requests_fd, 64 * 1024)
        if not data:
            raise HostGoneError
        return [decode_log_request(line) for line in self._splitter.feed(data)]

    def send(self, data: bytes) -> None:
        """Send all of it, waiting while the host does not take it.

        Raises:
            HostGoneError: It takes nothing any more.
        """
        view = memoryview(data)
        try:
            while view:  # a write can be short, also on a pipe (seen under gVisor at 64 KiB)
                view = view[os.write(self._replies_fd, view) :]
        except BrokenPipeError as error:
            raise HostGoneError from error

    def post(self, frame: Frame) -> None:
        """Send a frame."""
        self.send(encode_frame(frame))


class LogTailer:
    """One reading of log files, from its `Tail` to its `TailDone`."""

    def __init__(self, request: Tail, pipes: Pipes, *, root: str = ROOT) -> None:
        self._request = request
        self._pipes = pipes
        self._root = root
        self._selection = Selection(request)
        self._counts = Counts()
        self._pipelines: dict[str, FilePipeline] = {}
        self._positions: dict[str, FilePosition] = {}
        self._unsaid_bytes: dict[str, int] = {}
        self._fed: dict[str, float] = {}
        """When the files whose last event waits for more lines were read last."""
        self._sent_bytes = self._taken_bytes = 0
        self._notices = 0
        self._early_notices: list[Notice] = []
        self._is_open = False
        self._stopped = False
        self._files: LogFiles | None = None

    def run(self) -> None:
        """Read until the end, or until it is stopped.

        Raises:
            HostGoneError: Nobody is there any more.
            FrameError: A request is malformed.
        """
        mounts = [self._identity(path) for path in self._request.mounts]
        # Found before the host hears of it: what happens to the files after that is seen.
        self._files = LogFiles(self._request, root=self._root, notify=self._notify)
        self._pipes.post(TailOpened(op=self._request.op, mounts=mounts))
        for notice in self._early_notices:
            self._pipes.post(notice)
        self._is_open = True
        poller = select.poll()
        poller.register(self._pipes.requests_fd, select.POLLIN)
        try:
            while not self._stopped:
                if self._is_host_behind:
                    self._wait(poller, self._request.poll_s)
                elif not self._step(self._files):
                    if self._files.is_finished:
                        break
                    self._wait_for_changes(self._files)
                else:
                    self._wait(poller, 0)
            self._flush_events(until=None)
            self._pipes.post(self._done(self._files))
        finally:
            self._files.close()

    def _step(self, files: LogFiles) -> bool:
        """Read and send one block; return whether there was one."""
        block = files.read(_READ_BYTES)
        if block is None:
            return False
        pipeline = self._pipelines.get(block.path)
        if pipeline is None:
            pipeline = self._pipelines[block.path] = FilePipeline(
                self._request, self._selection, self._counts
            )
        position = files.position_of(block)
        if pipeline.held_from is not None and not self._goes_on(pipeline, block, position):
            self._flush_event(block.path)
        outgoing = pipeline.take(block)
        self._positions[block.path] = position
        if pipeline.held_from is not None:
            self._fed[block.path] = time.monotonic()
        self._send(block.path, outgoing, _before(position, pipeline.held_from))
        if not outgoing.texts:
            self._note_unsaid(block, _before(position, pipeline.held_from))
        return True

    def _goes_on(self, pipeline: FilePipeline, block: Block, position: FilePosition) -> bool:
        """Return whether a block is of the file before it; another one of the same name shares no event with it."""
        before = self._positions[block.path]
        is_same = (before.device, before.inode) == (position.device, position.inode)
        return is_same and pipeline.is_continued_by(block)

    def _send(self, path: str, outgoing: OutgoingLines, position: FilePosition) -> None:
        if not outgoing.texts:
            return
        self._unsaid_bytes[path] = 0
        last = outgoing.ends[-1]
        for data, count, end in outgoing.batches():
            at = position if end == last else msgspec.structs.replace(position, offset=end, done=False)
            head = encode_frame(
                Lines(op=self._request.op, path=path, count=count, size=len(data), position=at)
            )
            self._pipes.send(head + data)
            self._sent_bytes += len(head) + len(data)

    def _note_unsaid(self, block: Block, position: FilePosition) -> None:
        unsaid = self._unsaid_bytes.get(block.path, 0) + block.ends[-1] - block.start if block.ends else 0
        if unsaid >= _REACHED_EVERY_BYTES:
            self._pipes.post(Reached(op=self._request.op, position=position))
            unsaid = 0
        self._unsaid_bytes[block.path] = unsaid

    def _flush_events(self, *, until: float | None) -> None:
        """Send the events that have waited for more lines since before `until`; None: all of them."""
        for path, fed in list(self._fed.items()):
            if until is None or fed <= until:
                self._flush_event(path)

    def _flush_event(self, path: str) -> None:
        del self._fed[path]
        self._send(path, self._pipelines[path].flush(), self._positions[path])

    # Waiting.

    @property
    def _is_host_behind(self) -> bool:
        return self._sent_bytes - self._taken_bytes >= WINDOW_BYTES

    def _wait_for_changes(self, files: LogFiles) -> None:
        self._say_where_all_are()
        timeout_s = self._request.poll_s
        join = self._request.join
        if self._fed and join is not None:
            self._flush_events(until=time.monotonic() - join.wait_s)
            timeout_s = min(timeout_s, join.wait_s)
        poller = select.poll()
        poller.register(self._pipes.requests_fd, select.POLLIN)
        changes = files.changes_fd()
        if changes is not None:
            poller.register(changes, select.POLLIN)
        self._wait(poller, timeout_s)
        files.note_changes()

    def _wait(self, poller: select.poll, timeout_s: float) -> None:
        """Wait for the host or a change, and do what the host asks for."""
        for descriptor, _ in poller.poll(timeout_s * 1000):
            if descriptor == self._pipes.requests_fd:
                for request in self._pipes.take():
                    self._serve(request)

    def _serve(self, request: Tail | Room | StopTail) -> None:
        match request:
            case Room(taken_bytes=taken):
                self._taken_bytes = max(self._taken_bytes, min(taken, self._sent_bytes))
            case StopTail():
                self._stopped = True
            case Tail():
                raise FrameError("a second Tail")  # noqa: EM101

    def _say_where_all_are(self) -> None:
        for path, unsaid in self._unsaid_bytes.items():
            if unsaid:
                held = self._pipelines[path].held_from
                self._pipes.post(Reached(op=self._request.op, position=_before(self._positions[path], held)))
                self._unsaid_bytes[path] = 0

    # What is said beside the lines.

    def _notify(self, notice: Notice) -> None:
        self._notices += 1
        if self._notices > MAX_NOTICES:
            return
        if self._is_open:
            self._pipes.post(notice)
        else:
            self._early_notices.append(notice)

    def _identity(self, path: str) -> MountIdentity:
        try:
            status = Path(self._root + path).stat()
        except OSError:  # the host sees that it is none of its folders
            return MountIdentity(path, 0, 0)
        return MountIdentity(
            path,
            status.st_dev,
            status.st_ino,
            mode=status.st_mode,
            owner=status.st_uid,
            group=status.st_gid,
            changed_ns=status.st_ctime_ns,
        )

    def _done(self, files: LogFiles) -> TailDone:
        counts = self._counts
        return TailDone(
            op=self._request.op,
            lines_read=counts.read,
            lines_matched=counts.matched,
            lines_dropped=counts.dropped,
            lines_unparsed=counts.unparsed,
            bytes_read=files.bytes_read,
            files=files.files[:_MOST_FILES],
            rotations=files.rotations,
            notices_left_out=max(0, self._notices - MAX_NOTICES),
            positions=files.positions()[:_MOST_POSITIONS],
        )


def _before(position: FilePosition, held_from: int | None) -> FilePosition:
    """Return a position that does not reach into an event that waits for more lines."""
    return position if held_from is None else msgspec.structs.replace(position, offset=held_from, done=False)


def serve(requests_fd: int, replies_fd: int, *, root: str = ROOT) -> int:
    """Serve one reading on two descriptors and return the exit code."""
    pipes = Pipes(requests_fd, replies_fd)
    try:
        request = _first(pipes)
        LogTailer(request, pipes, root=root).run()
    except HostGoneError:
        return EXIT_OK
    except FrameError as error:
        return _fail(pipes, EXIT_MALFORMED, str(error)[:1000])
    except Exception as error:  # noqa: BLE001 - whatever it is, the host must hear of it
        return _fail(pipes, EXIT_FAULT, f"{type(error).__name__}: {error!r}"[:1000])
    return EXIT_OK


def _first(pipes: Pipes) -> Tail:
    requests: list[Tail | Room | StopTail] = []
    while not requests:
        requests = pipes.take()
    first, *rest = requests
    if not isinstance(first, Tail) or rest:
        raise FrameError("expected one Tail first")  # noqa: EM101
    return first


def _fail(pipes: Pipes, exit_code: int, message: str) -> int:
    try:
        pipes.post(Fault(message=message))
    except HostGoneError:
        return EXIT_OK
    return exit_code


if __name__ == "__main__":
    sys.exit(serve(sys.stdin.fileno(), sys.stdout.fileno()))
