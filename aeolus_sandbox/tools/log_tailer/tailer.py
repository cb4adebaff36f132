"""The host's side of a log tailer's guest: one request out, batches of lines in, and its end when time is up."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from aeolus_sandbox.errors import GuestProtocolError, SessionBroken, SessionClosed
from aeolus_sandbox.exit_status import ExitStatus, Stop
from aeolus_sandbox.guest.frames import Frame, FrameError, encode_frame
from aeolus_sandbox.guest.logs import frames
from aeolus_sandbox.guest.logs.frames import WINDOW_BYTES
from aeolus_sandbox.streaming.chunks import ChunkBatch, OutputChunk
from aeolus_sandbox.streaming.sandbox import Process
from aeolus_sandbox.tools.log_tailer import replies
from aeolus_sandbox.tools.log_tailer.batches import batch_of
from aeolus_sandbox.tools.log_tailer.chunks import LogChunk, LogNotice, LogNoticeKind
from aeolus_sandbox.tools.log_tailer.folders import LogFolders
from aeolus_sandbox.tools.log_tailer.models import LogCursor, LogResult
from aeolus_sandbox.tools.log_tailer.output import GuestOutput
from aeolus_sandbox.tools.log_tailer.positions import ReadPositions, cursor_of

OPEN_TIMEOUT_S: Final = 60.0
"""How soon the guest must have opened its folders."""
STOP_GRACE_S: Final = 2.0
"""How long the guest may take to end in order, before its container is stopped."""
SEND_TIMEOUT_S: Final = 30.0
_STDERR_TAIL_BYTES: Final = 4096
_ROOM_EVERY_BYTES: Final = WINDOW_BYTES // 4
"""After how much the guest hears that it was taken."""


class Tailer:
    """One guest that reads log files."""

    def __init__(self, process: Process, *, start: LogCursor, stop_grace_s: float = STOP_GRACE_S) -> None:
        self._process = process
        self._stop_grace_s = stop_grace_s
        self._output = GuestOutput()
        self._line_bytes = 0
        self._writing = asyncio.Lock()
        self._stderr = b""
        self._op = 0
        self._positions = ReadPositions(start)
        self._resumed = bool(start.positions)
        self._sequence = 0
        self._matched = 0
        self._files: dict[str, None] = {}
        self._taken_bytes = self._told_bytes = 0
        self._done: replies.TailDone | None = None
        self._stop: Stop | None = None
        self._exit: ExitStatus | None = None
        self._ended = asyncio.Event()

    async def open(self, request: frames.Tail, folders: LogFolders, *, by_number: bool = True) -> None:
        """Send the request, and wait until the guest has its folders, which must be those that were checked.

        `by_number` says whether the guest's kernel has the host's devices and inodes.

        Raises:
            LogPathRefused: A folder was replaced after the check; the container has been stopped.
            SessionBroken: The guest does not start, or has failed.
            GuestProtocolError: The guest sent what no guest of ours sends.
        """
        self._op = request.op
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                await self._send(request)
                opened = await self._next_reply()
        except TimeoutError as error:
            msg = f"the log tailer has opened nothing within {OPEN_TIMEOUT_S:g} s"
            raise SessionBroken(msg) from error
        if not isinstance(opened, replies.TailOpened):
            raise _broken(FrameError("it begins with another frame than `tail_opened`"))
        try:
            # In a thread: it may look at the folders again.
            await asyncio.to_thread(folders.check_opened, opened.mounts, by_number=by_number)
        except PermissionError:
            await self._process.stop(Stop(reason="killed"))
            raise

    async def chunks(self) -> AsyncIterator[LogChunk | ChunkBatch]:
        """Yield the lines in batches, and the notices between them, until the guest has ended.

        Raises:
            SessionBroken: The engine or the container went away, or the guest failed.
            GuestProtocolError: The guest sent what no guest of ours sends.
        """
        try:
            while self._done is None:
                reply = await self._next_reply()
                if isinstance(reply, replies.Lines):
                    yield await self._take_batch(reply)
                    await self._say_room()
                elif isinstance(reply, replies.Notice):
                    yield self._take_notice(reply)
                else:
                    self._take(reply)
        except SessionBroken:
            out_of_memory = self._exit is not None and self._exit.reason == "out_of_memory"
            if self._stop is None and not out_of_memory:
                raise
        finally:
            self._ended.set()

    async def result(self) -> LogResult:
        """Return what was read; where the guest could not say it, what has come of it."""
        done, status = self._done, self._status()
        if done is None:
            return LogResult(
                status=status,
                lines_read=self._matched,
                lines_matched=self._matched,
                lines_dropped=0,
                lines_unparsed=0,
                bytes_read=0,
                files=tuple(self._files),
                cursor=cursor_of(self._positions.all()),
                resumed=self._resumed,
                complete=False,
            )
        return LogResult(
            status=status,
            lines_read=done.lines_read,
            lines_matched=done.lines_matched,
            lines_dropped=done.lines_dropped,
            lines_unparsed=done.lines_unparsed,
            bytes_read=done.bytes_read,
            files=tuple(done.files),
            rotations=done.rotations,
            cursor=cursor_of(done.positions),
            resumed=self._resumed,
            notices_left_out=done.notices_left_out,
        )

    async def stop(self, stop: Stop) -> None:
        """End the reading in order, so that its result is whole; a guest that does not obey is killed."""
        self._stop = self._stop or stop
        try:
            async with asyncio.timeout(self._stop_grace_s):
                await self._send(frames.StopTail(op=self._op))
                await self._ended.wait()
        except (TimeoutError, SessionBroken):
            if not self._ended.is_set():
                await self._process.stop(stop)

    def after(self, chunk: OutputChunk) -> str:
        """Return the cursor after a chunk, as JSON; see `streaming.progress.Progress`."""
        # A summary is no line: who reads those goes on where they began.
        sequence, offset = (chunk.sequence, chunk.end_offset) if isinstance(chunk, LogChunk) else (0, 0)
        positions = self._positions.after(sequence, offset)
        return msgspec.json.encode({"positions": positions}).decode()

    # What the guest says.

    async def _take_batch(self, head: replies.Lines) -> ChunkBatch:
        self._taken_bytes += self._line_bytes + head.size
        while (lines := self._output.block(head.size)) is None:
            await self._read()
        batch = batch_of(head.path, lines, count=head.count, first=self._sequence + 1)
        self._sequence += head.count
        self._matched += head.count
        if len(self._files) < replies.MAX_FILES:
            self._files[head.path] = None
        self._positions.note(head.position, last=self._sequence)
        return batch

    def _take_notice(self, notice: replies.Notice) -> LogChunk:
        try:
            kind = LogNoticeKind(notice.kind)
        except ValueError as error:
            raise _broken(FrameError(f"a notice of the kind {notice.kind[:100]!r}")) from error
        self._sequence += 1
        self._positions.skip(last=self._sequence)
        offset = notice.offset or 0
        return LogChunk(
            raw="",
            message=notice.text,
            file=notice.path or "",
            offset=offset,
            end_offset=offset,
            sequence=self._sequence,
            notice=LogNotice(kind=kind, text=notice.text, count=notice.count),
        )

    def _take(self, reply: replies.LogReply) -> None:
        match reply:
            case replies.Reached(position=position):
                self._positions.note(position, last=self._sequence)
            case replies.TailDone():
                self._done = reply
            case _:
                raise _broken(FrameError("a second `tail_opened`"))

    async def _next_reply(self) -> replies.LogReply:
        # Boundary: many tiny frames arrive at once; the host's other sessions have their turn in between.
        await asyncio.sleep(0)
        try:
            while (line := self._output.line()) is None:
                await self._read()
            self._line_bytes = len(line) + 1
            reply = replies.decode_log_reply(line)
        except FrameError as error:
            raise _broken(error) from error
        if isinstance(reply, replies.Fault):
            msg = f"the log tailer failed: {reply.message[:500]}"
            raise SessionBroken(msg)
        return reply

    async def _read(self) -> None:
        pieces = await self._process.read()
        if not pieces:
            raise SessionBroken(await self._last_words())
        for stream, data in pieces:
            if stream == "stderr":
                self._stderr = (self._stderr + data)[-_STDERR_TAIL_BYTES:]
            else:
                self._output.feed(data)

    async def _last_words(self) -> str:
        self._exit = await self._process.wait()
        words = self._stderr.decode("utf-8", "replace").strip()
        return f"the log tailer's container has ended ({self._exit})" + (f": {words}" if words else "")

    # What it is told.

    async def _say_room(self) -> None:
        """Tell the guest how much was taken: until it hears, it sends no more than `WINDOW_BYTES` ahead."""
        if self._taken_bytes - self._told_bytes >= _ROOM_EVERY_BYTES:
            self._told_bytes = self._taken_bytes
            await self._send(frames.Room(op=self._op, taken_bytes=self._taken_bytes))

    async def _send(self, request: Frame) -> None:
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S), self._writing:
                await self._process.write(encode_frame(request))
        except TimeoutError as error:
            msg = f"the log tailer has read nothing for {SEND_TIMEOUT_S:g} s"
            raise SessionBroken(msg) from error
        except SessionClosed as error:
            msg = "the log tailer's container has ended"
            raise SessionBroken(msg) from error

    def _status(self) -> ExitStatus:
        if self._stop is not None:
            return ExitStatus(reason=self._stop.reason, limit_hit=self._stop.limit_hit)
        return ExitStatus(reason="exited", code=0) if self._exit is None else self._exit


def _broken(error: FrameError) -> GuestProtocolError:
    # Boundary: such a guest has been taken over or is not ours; nothing more of it is read.
    return GuestProtocolError(f"the log tailer broke the protocol: {error}")
