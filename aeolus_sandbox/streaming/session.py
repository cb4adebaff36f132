"""What a caller holds: one running tool, read through a policy, with its limits kept."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Self

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import AeolusError, NotInteractive, SessionBroken, SessionBusy, SessionClosed
from aeolus_sandbox.exit_status import ExitStatus, Stop
from aeolus_sandbox.limits import LimitName, Limits
from aeolus_sandbox.streaming.chunks import C, ChunkCodec
from aeolus_sandbox.streaming.policies import ContextWindow, Policy
from aeolus_sandbox.streaming.spool import Spool
from aeolus_sandbox.streaming.stdin import StdinEvent
from aeolus_sandbox.streaming.tool import F, StreamingToolHandle

_logger = logging.getLogger(__name__)

STOP_GRACE_S: Final = 10.0
"""How long a tool may take to end after it was told to."""
_BREATHE_EVERY: Final = 256
"""After how many chunks the pump lets everybody else run, however many more are there."""


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
        policy: Policy,
        codec: ChunkCodec[C],
        limits: Limits,
        tasks: BackgroundTasks,
        release: Callable[[], Awaitable[None]],
    ) -> None:
        self.id = session_id
        self.limits = limits
        self._handle = handle
        self._codec = codec
        self._lets_oldest_go = policy.lets_oldest_go
        self._spool: Spool[C] = Spool(codec, capacity_bytes=limits.output_bytes)
        self._view = policy.view(self._spool)
        self._tasks = tasks
        self._release = release
        self._reading = False
        self._closed = False
        self._stop: Stop | None = None
        self._final: F | None = None
        self._error: BaseException | None = None
        self._ended = asyncio.Event()
        self._released = asyncio.Event()
        self._last_activity = asyncio.get_running_loop().time()
        self._timers: list[asyncio.TimerHandle] = []
        self._start_timers()
        self._life = tasks.start(self._live(), name=f"session {session_id}")

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

    async def next_chunk(self) -> C | None:
        """Return the next chunk that the policy lets through, or None at the end.

        Cancelling this call loses nothing: the chunk stays for the next one.

        Raises:
            SessionBusy: Another task is reading already.
            SessionClosed: The session was closed.
            SessionBroken: The engine or the container went away; all that had arrived was given first.
        """
        if self._closed:
            msg = f"the session {self.id!r} is closed"
            raise SessionClosed(msg)
        if self._reading:
            msg = f"another task is reading from the session {self.id!r} already: one reader at a time"
            raise SessionBusy(msg)
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
        self._last_activity = asyncio.get_running_loop().time()
        await self._handle.stdin.send(event)

    async def cancel(self) -> None:
        """End the tool and wait for its end; its result says `cancelled`. Without effect when it has ended."""
        await self._tasks.run(self._end(Stop(reason="cancelled")), name=f"cancel session {self.id}")

    async def finalize(self) -> F:
        """Wait for the tool's end and return its result; may be called again, also after the session was closed.

        Raises:
            SessionBroken: The engine or the container went away, or the tool did not end when it was told to.
            AeolusError: Whatever else kept the tool from giving a result.
        """
        await self._ended.wait()
        if self._error is not None:
            raise self._error
        assert self._final is not None
        return self._final

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
        """
        return await self._spool.read_range(start, end)

    async def aclose(self) -> None:
        """End the tool if it still runs, and let go of everything; the result stays available."""
        self._closed = True
        await self._tasks.run(self._close(), name=f"close session {self.id}")

    # The session's life, in a background task: pump until the end of output, then take the result.

    async def _live(self) -> None:
        try:
            await self._pump()
            self._final = await self._handle.finalize
        except asyncio.CancelledError:
            self._error = SessionBroken(
                f"the tool of the session {self.id!r} did not end when it was told to"
            )
        except AeolusError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - a tool's own failure belongs to whoever reads the session
            self._error = error
        finally:
            for timer in self._timers:
                timer.cancel()
            if asyncio.iscoroutine(self._handle.finalize):
                self._handle.finalize.close()  # without effect once it has run
            self._spool.end(self._error)
            self._ended.set()
            self._tasks.start(self._let_go(), name=f"release session {self.id}")

    async def _pump(self) -> None:
        """Read everything the tool streams, whatever the reader does."""
        taken = 0
        async for chunk in self._handle.chunks:
            taken += 1
            if taken % _BREATHE_EVERY == 0:  # those that are there already come without a pause
                await asyncio.sleep(0)
            self._last_activity = asyncio.get_running_loop().time()
            if self._stop is not None and self._stop.limit_hit == LimitName.OUTPUT_BYTES:
                continue  # nothing more is kept, but what has not been read would stall the end
            tag, payload = self._codec.encode(chunk)
            if self._make_room(len(payload)):
                self._spool.append(tag, payload)
                await self._spool.settle()
            else:
                self._begin_stop(Stop(reason="output_limit", limit_hit=LimitName.OUTPUT_BYTES))

    def _make_room(self, payload_bytes: int) -> bool:
        while not self._spool.fits(payload_bytes):
            if not self._lets_oldest_go or self._spool.is_empty:
                return False
            self._spool.evict_oldest()
        return True

    async def _let_go(self) -> None:
        try:
            await self._release()
        finally:
            self._released.set()

    # Ending it.

    def _begin_stop(self, stop: Stop) -> None:
        if self._stop is None and not self._ended.is_set():
            self._tasks.start(self._end(stop), name=f"stop session {self.id}")

    async def _end(self, stop: Stop) -> None:
        if self._stop is None and not self._ended.is_set():
            self._stop = stop
            try:
                async with asyncio.timeout(STOP_GRACE_S):
                    await self._handle.cancel.cancel(stop)
                    await self._ended.wait()
            except TimeoutError:
                self._life.cancel()
            except Exception:  # the tool's own cancel callback failed: its end is forced
                _logger.warning("ending the session %r failed, forcing it", self.id, exc_info=True)
                self._life.cancel()
        await self._ended.wait()

    async def _close(self) -> None:
        await self._end(Stop(reason="cancelled"))
        await self._released.wait()
        self._spool.close()

    # Time limits; asyncio's clock is monotonic, so a step of the wall clock changes nothing.

    def _start_timers(self) -> None:
        loop = asyncio.get_running_loop()
        wall = Stop(reason="timed_out", limit_hit=LimitName.WALL_TIME)
        self._timers.append(loop.call_later(self.limits.wall_time_s, self._begin_stop, wall))
        if self.limits.idle_time_s is not None:
            self._timers.append(loop.call_later(self.limits.idle_time_s, self._check_idle))

    def _check_idle(self) -> None:
        assert self.limits.idle_time_s is not None
        loop = asyncio.get_running_loop()
        left = self._last_activity + self.limits.idle_time_s - loop.time()
        if left <= 0:
            self._begin_stop(Stop(reason="timed_out", limit_hit=LimitName.IDLE_TIME))
        else:
            self._timers[-1] = loop.call_later(left, self._check_idle)
