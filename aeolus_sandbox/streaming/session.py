"""What a caller holds: one running tool, read through a policy, with its limits kept."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Generic, Self

from aeolus_sandbox.errors import (
    AeolusError,
    CheckpointError,
    NotInteractive,
    SessionBroken,
    SessionBusy,
    SessionClosed,
    StorageError,
)
from aeolus_sandbox.exit_status import ExitStatus, Stop
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.streaming.chunks import C, ChunkCodec
from aeolus_sandbox.streaming.clock import SessionClock
from aeolus_sandbox.streaming.filters import Filter
from aeolus_sandbox.streaming.filters.chunk_filter import filtered_model
from aeolus_sandbox.streaming.held_files import FETCHED_BYTES, HeldFiles
from aeolus_sandbox.streaming.policies import ContextWindow, Policy, PolicyContext
from aeolus_sandbox.streaming.progress import ProgressKeeper
from aeolus_sandbox.streaming.pump import Pump
from aeolus_sandbox.streaming.services import RunRecord, SessionServices
from aeolus_sandbox.streaming.spool import Spool
from aeolus_sandbox.streaming.stdin import StdinEvent
from aeolus_sandbox.streaming.tool import PREPARATION_LIMIT_S, F, StreamingToolHandle

_logger = logging.getLogger(__name__)

STOP_GRACE_S: Final = 10.0
"""How long a tool may take to end after it was told to."""


class StreamingToolSession(Generic[C, F]):
    """One running tool: read its chunks, send it input, cancel it, and take its result.

    An async iterator over the chunks, and an async context manager that ends the tool when it is left.
    One task at a time may read; any task may send, cancel and finalize.
    """

    def __init__(
        self,
        handle: StreamingToolHandle[C, F],
        *,
        session_id: str,
        tool_name: str,
        policy: Policy,
        filters: Sequence[Filter] = (),
        codec: ChunkCodec[C],
        limits: Limits,
        services: SessionServices,
        release: Callable[[], Awaitable[None]],
        record: RunRecord | None = None,
    ) -> None:
        self.id = session_id
        self.limits = limits
        self._handle = handle
        # A tool that is kept waiting is not idle while its reader goes on.
        self._reading_is_activity = policy.waits_at is not None and limits.idle_time_s is not None
        self._filters = tuple(filters)
        self._spool: Spool[C] = Spool(codec, capacity_bytes=limits.output_bytes)
        self._tasks = services.tasks
        self._release = release
        self._record = record
        self._reading = False
        self._closed = False
        self._stop: Stop | None = None
        self._given_up = False
        self._final: F | None = None
        self._is_recorded = False
        self._error: BaseException | None = None
        self._files = HeldFiles(lambda: handle.files, services.tasks)
        self._ended = asyncio.Event()
        self._released = asyncio.Event()
        self._view = policy.view(
            self._spool,
            PolicyContext(
                session_id=session_id,
                run_key=session_id if record is None else record.key,
                tool_name=tool_name,
                tasks=services.tasks,
                pause_clock=self._pause_clock,
                halt=lambda: self._begin_stop(Stop(reason="cancelled")),
                text_model=services.text_model,
                approvals=services.approvals,
            ),
        )
        preparation_s = 0.0 if handle.prepared is None else PREPARATION_LIMIT_S
        self._clock = SessionClock(
            limits, may_pause_s=policy.may_pause_s + preparation_s, over=self._begin_stop
        )
        self._pump: Pump[C] = Pump(
            self._spool,
            codec=codec,
            policy=policy,
            filters=self._filters,
            touch=self._clock.touch,
            over=self._begin_stop,
        )
        if handle.prepared is not None:
            self._tasks.start(self._stand_still_until(handle.prepared), name=f"prepare session {session_id}")
        self._progress: ProgressKeeper[C] | None = None
        self._progress_task: asyncio.Task[None] | None = None
        if record is not None and handle.progress is not None:
            self._progress = ProgressKeeper(record, handle.progress)
            self._progress_task = self._tasks.start(self._progress.run(), name=f"progress of {session_id}")
        self._life = self._tasks.start(self._live(), name=f"session {session_id}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> C:
        chunk = await self.next_chunk()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    @property
    def idempotency_key(self) -> str | None:
        """What to open the same run with again, so that it is not done twice; None: the run is not recorded."""
        return None if self._record is None else self._record.key

    @property
    def is_replay(self) -> bool:
        """Whether the result is one that an earlier run of the same key has stored, and nothing runs."""
        return self._record is not None and self._record.is_replay

    async def next_chunk(self) -> C | None:
        """Return the next chunk that the policy lets through, or None at the end.

        Cancelling this call loses nothing: the chunk stays for the next one.

        Raises:
            SessionBusy: Another task is reading already.
            SessionClosed: The session was closed.
            SessionBroken: The engine or the container went away; all that had arrived was given first.
            ApprovalError: `Manual` withholds a chunk; the next call goes on with the next one.
        """
        if self._closed:
            msg = f"the session {self.id!r} is closed"
            raise SessionClosed(msg)
        if self._reading:
            msg = f"another task is reading from the session {self.id!r} already: one reader at a time"
            raise SessionBusy(msg)
        progress = self._progress
        if progress is not None:
            progress.latest = progress.given
        chunk: C | None = self._view.ready()
        if chunk is None:
            chunk = await self._next_chunk()
        if self._reading_is_activity:
            self._clock.touch()
        if progress is not None and chunk is not None:
            progress.given = chunk
        return chunk

    async def _next_chunk(self) -> C | None:
        self._reading = True
        try:
            chunk: C | None = await self._view.next_chunk()
        finally:
            self._reading = False
        if chunk is None and self._spool.error is not None:
            raise self._spool.error
        return chunk

    async def send_stdin(self, event: StdinEvent) -> None:
        """Send an event to the tool, waiting while it does not take it.

        Raises:
            NotInteractive: The tool is read-only.
            SessionClosed: The tool has ended, or takes no more input.
        """
        if self._handle.stdin is None:
            msg = f"the tool of the session {self.id!r} takes no input"
            raise NotInteractive(msg)
        if self._closed or self._ended.is_set():
            msg = f"the session {self.id!r} has ended and takes no more input"
            raise SessionClosed(msg)
        self._clock.touch()
        await self._handle.stdin.send(event)

    async def cancel(self) -> None:
        """End the tool and wait for its end; its result says `cancelled`. Without effect when it has ended."""
        await self._tasks.run(self._end(Stop(reason="cancelled")), name=f"cancel session {self.id}")

    async def finalize(self) -> F:
        """Wait for the tool's end and return its result; may be called again, also after the session was closed.

        A tool that waits for its reader (`Window(wait_for_reader=True)`) does not end before it is read.

        Raises:
            SessionBroken: The engine or the container went away, or the tool did not end when it was told to.
            StorageError: The result could not be recorded; calling again tries again.
            CheckpointConflict: Another process has taken the run over; open it again for its result.
            AeolusError: Whatever else kept the tool from giving a result.
        """
        await self._ended.wait()
        if self._error is not None:
            raise self._error
        assert self._final is not None
        await self._keep_record(self._final)
        return await self._view.result(self._final)

    @property
    def status(self) -> ExitStatus | None:
        """How the run ended, or None while it goes on."""
        if not self._ended.is_set():
            return None
        told: object = getattr(self._final, "status", None)
        if isinstance(told, ExitStatus):
            return told
        if self._stop is not None:
            return ExitStatus(reason=self._stop.reason, limit_hit=self._stop.limit_hit)
        return ExitStatus(reason="exited" if self._error is None else "lost")

    def context_window(self) -> ContextWindow:
        """Return what the reader has before it, and what it will not see any more."""
        return self._view.context_window()

    async def read_range(self, start: int, end: int) -> bytes:
        """Return the raw bytes of a range of the output, as far as they are still held.

        What the reader has not seen is held up to `output_bytes`; what it has seen, while memory has room for it.
        What a filter took out is not in them.
        """
        return await self._spool.read_range(start, end)

    async def read_artifact(self, path: str, *, max_bytes: int = FETCHED_BYTES) -> bytes:
        """Wait for the tool's end and return the content of a file of its workspace, which no filter has seen.

        A session's own container is held for this until the session is closed, but not for long (`HOLD_S`); one that
        is kept under a `session_id` gives its files out as long as it lives.

        Raises:
            ConfigurationError: The path is not one of a file below the workspace.
            ArtifactError: There is no such file, it is larger than `max_bytes`, or the workspace is gone.
            SessionError: The container was lost, or is not kept any more.
        """
        await self._ended.wait()
        return await self._files.read(path, max_bytes=max_bytes)

    async def save_artifact(self, path: str, to: Path, *, max_bytes: int | None = None) -> int:
        """Wait for the tool's end, stream a file of its workspace to a file of the host, and return its size in bytes.

        The file appears under its name when it is whole, in the place of one that was there.

        Args:
            path: The file, relative to the workspace.
            to: The name of the file to write; its folder must be there.
            max_bytes: The largest size to accept; None: the `disk_bytes` of the session.

        Raises:
            ConfigurationError: The path is not one of a file below the workspace.
            ArtifactError: There is no such file, it is larger than `max_bytes`, or the workspace is gone.
            SessionError: The container was lost, or is not kept any more.
            OSError: The host's file cannot be written.
        """
        await self._ended.wait()
        limit = int(self.limits.disk_bytes) if max_bytes is None else max_bytes
        return await self._files.save(path, to, max_bytes=limit)

    async def aclose(self) -> None:
        """End the tool if it still runs, and let go of everything; the result stays available."""
        self._closed = True
        await self._tasks.run(self._close(), name=f"close session {self.id}")

    # The session's life, in a background task: pump until the end of output, then take the result.

    async def _live(self) -> None:
        try:
            await self._pump.run(self._handle.chunks)
            final = await self._handle.finalize
            self._final = (
                await asyncio.to_thread(filtered_model, final, self._filters) if self._filters else final
            )
        except asyncio.CancelledError:
            self._error = SessionBroken(
                f"the tool of the session {self.id!r} did not end when it was told to"
            )
        except AeolusError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - a tool's own failure belongs to whoever reads the session
            self._error = error
        finally:
            self._clock.stop()
            if self._handle.prepared is not None:
                self._handle.prepared.set()
            if asyncio.iscoroutine(self._handle.finalize):
                self._handle.finalize.close()  # without effect once it has run
            try:
                await self._record_end()
            finally:
                self._spool.end(self._error)
                self._ended.set()
                self._tasks.start(self._let_go(), name=f"release session {self.id}")

    async def _stand_still_until(self, prepared: asyncio.Event) -> None:
        with self._clock.paused():
            await prepared.wait()

    async def _end_progress(self) -> None:
        if self._progress is not None and self._progress_task is not None:
            self._progress_task.cancel()
            await self._progress.write()

    async def _let_go(self) -> None:
        try:
            await self._files.wait_unneeded()
            await self._release()
        finally:
            self._released.set()

    # What is written down of it.

    async def _record_end(self) -> None:
        if self._record is None:
            return
        try:
            await self._end_progress()
        finally:
            await self._record_result(self._record)

    async def _record_result(self, record: RunRecord) -> None:
        try:
            if self._final is None or self._given_up:
                await record.give_up()
            else:
                await self._keep_record(self._final)
        except (StorageError, CheckpointError) as error:
            _logger.warning("the end of the session %r is not recorded: %s", self.id, error)

    async def _keep_record(self, final: F) -> None:
        if self._record is not None and not self._is_recorded and not self._given_up:
            await self._record.store(final)
            self._is_recorded = True

    # Ending it.

    def _begin_stop(self, stop: Stop) -> None:
        if self._note_stop(stop):
            self._tasks.start(self._stop_tool(stop), name=f"stop session {self.id}")

    def _note_stop(self, stop: Stop) -> bool:
        """Note why it ends, unless it has ended or has another reason; at once, as the tool may end before it is told."""
        if self._stop is not None or self._ended.is_set():
            return False
        self._stop = stop
        self._spool.hurry()
        return True

    async def _end(self, stop: Stop) -> None:
        if self._note_stop(stop):
            await self._stop_tool(stop)
        await self._ended.wait()

    async def _stop_tool(self, stop: Stop) -> None:
        if self._ended.is_set():
            return
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await self._handle.cancel.cancel(stop)
                await self._ended.wait()
        except TimeoutError:
            self._life.cancel()
        except Exception:  # the tool's own cancel callback failed: its end is forced
            _logger.warning("ending the session %r failed, forcing it", self.id, exc_info=True)
            self._life.cancel()

    async def _close(self) -> None:
        # A run that its owner walks away from has not come to its end: its result stands for nothing.
        self._given_up = self._given_up or not self._ended.is_set()
        await self._end(Stop(reason="cancelled"))
        await self._view.aclose()
        self._files.close()
        await self._released.wait()
        self._spool.close()

    def _pause_clock(self) -> AbstractContextManager[None]:
        return self._clock.paused()
