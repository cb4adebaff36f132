"""The host's side of a guest's kernel: frames out, checked frames in."""

import asyncio
import itertools
from collections import deque
from typing import Final

from aeolus_sandbox.errors import (
    AeolusError,
    GuestProtocolError,
    SessionBroken,
    SessionClosed,
)
from aeolus_sandbox.exit_status import ExitStatus, Stop
from aeolus_sandbox.guest import frames
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.profiles import SandboxProfile
from aeolus_sandbox.streaming.sandbox import Process
from aeolus_sandbox.streaming.tool import IsolationMode
from aeolus_sandbox.tools.code_interpreter import replies

BOOT_TIMEOUT_S: Final = 60.0
ANSWER_TIMEOUT_S: Final = 60.0
"""How long a guest may take to read what is sent to it, and to write a file."""
PING_TIMEOUT_S: Final = 10.0
"""How long a guest that was left alone may take to say that it is there, before it is taken for lost."""
_ANSWERS: Final = (replies.Done, replies.Changes, replies.FilePiece)
_STDERR_TAIL_BYTES: Final = 4096
_TURN_REPLIES: Final = 256
_LATE_BYTES: Final = 1024 * 1024
"""How much output of earlier code is kept that comes while a file is written or a kernel boots."""


class Kernel:
    """One guest with its kernel; one operation at a time. It can be kept from session to session."""

    def __init__(
        self,
        process: Process,
        profile: SandboxProfile,
        limits: Limits,
        *,
        isolation: IsolationMode = IsolationMode.CONTAINER,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self.profile = profile
        self.isolation = isolation
        """What its container was started with."""
        self.limits = limits
        """The limits of the container, which all sessions share that use it."""
        self._process = process
        self._answer_timeout_s = answer_timeout_s
        self._splitter = frames.LineSplitter()
        self._lines: deque[bytes] = deque()
        self._taken = 0
        self._line_bytes = 0
        self._late: deque[replies.Reply] = deque()
        self._late_bytes = 0
        self._ops = itertools.count(1)
        self._stderr = b""
        self._failure: AeolusError | None = None
        self._booting = True
        self._doubted = False
        self.ended: ExitStatus | None = None
        """How the container ended by itself, where it has."""
        self.state_lost = False
        """Whether the kernel has been replaced since somebody last asked."""

    @property
    def image(self) -> str:
        """The image of its container."""
        return self.profile.image

    @property
    def language(self) -> str | None:
        """The language that it speaks."""
        return self.profile.argv[1] if self.profile.argv else None

    @property
    def is_usable(self) -> bool:
        """Whether the guest answers; a kernel that died has been replaced by then."""
        return self._failure is None

    def mark_recreated(self) -> None:
        """Note that an earlier kernel of the same key was lost; see `Kept.mark_recreated`."""
        self.state_lost = True

    async def wait_ready(self) -> None:
        """Wait until the kernel has booted.

        Raises:
            SessionBroken: It does not boot, or the container was lost.
            GuestProtocolError: The guest does not speak our protocol.
        """
        try:
            async with asyncio.timeout(BOOT_TIMEOUT_S):
                while self._booting:
                    self._keep_late(await self._next())
        except TimeoutError as error:
            msg = f"the kernel did not boot within {BOOT_TIMEOUT_S:g} s"
            raise self._failed(SessionBroken(msg)) from error

    async def execute(self, code: str, *, allow_stdin: bool = False, chart_data: bool = False) -> int | None:
        """Send code to the kernel and return the operation's number; its replies end with `Done` or `KernelDied`.

        None is returned where the guest was lost before it got the code; see `reaches`.

        Raises:
            SessionBroken: The guest takes no input, or its next kernel does not boot.
            GuestProtocolError: The guest sent what no guest of ours sends.
        """
        op = next(self._ops)
        request = frames.Execute(
            op=op, code=code, allow_stdin=allow_stdin, chart_data=chart_data, list_changes=True
        )
        try:
            if not await self.reaches(request):
                return None
            if (
                self._booting
            ):  # the last one died between two calls; the boot is not to take of the code's time
                await self.wait_ready()
        except asyncio.CancelledError:
            self._failed(SessionBroken("the kernel has got code that nobody waits for"))
            raise
        return op

    async def answer(self, op: int, text: str | None) -> None:
        """Answer a question of an operation with a line; None is the end of input."""
        await self.send(frames.InputReply(op=op, text=text))

    async def interrupt(self, op: int) -> None:
        """Interrupt an operation."""
        await self.send(frames.Interrupt(op=op))

    async def kill_kernel(self, op: int) -> None:
        """Kill the kernel, which loses its state."""
        await self.send(frames.KillKernel(op=op))

    def new_op(self) -> int:
        """Return the number of a new operation."""
        return next(self._ops)

    async def send(self, *requests: frames.Request) -> None:
        """Send requests to the guest.

        Raises:
            SessionBroken: The guest takes no input.
        """
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                await self._process.write(b"".join(map(frames.encode_frame, requests)))
        except TimeoutError as error:  # the code has stopped the guest, say
            msg = f"the kernel's host has read nothing for {self._answer_timeout_s:g} s"
            raise self._failed(SessionBroken(msg)) from error
        except SessionClosed as error:
            msg = "the kernel's container has ended"
            raise self._failed(SessionBroken(msg)) from error

    async def reply_to(self, op: int) -> replies.Done | replies.Changes | replies.FilePiece:
        """Return the next reply to a request that runs no code; what code says meanwhile is kept for the next one.

        Raises:
            SessionBroken: None has come in time, the guest has ended, or the container was lost.
            GuestProtocolError: The guest sent what no guest of ours sends.
        """
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                while True:
                    reply = await self._next()
                    if isinstance(reply, _ANSWERS) and reply.op == op:
                        return reply
                    self._keep_late(reply)
        except TimeoutError as error:
            msg = f"the kernel's host has given no answer within {self._answer_timeout_s:g} s"
            raise self._failed(SessionBroken(msg)) from error

    async def wait_usable(self) -> bool:
        """Have the guest prove, with its next request, that it still answers; see `Kept.wait_usable` and `reaches`."""
        self._doubted = True
        return self.is_usable

    async def reaches(self, *requests: frames.Request) -> bool:
        """Send requests, and return whether the guest gets them: one that was left alone may be gone, or stopped.

        In that case it is asked in the same breath whether it is there, so that the answer costs no time of its own.
        The question goes first: a guest that does not answer it has done nothing of the rest. It is given up, and
        whoever puts another in its place removes its container first, should it only have been slow.

        Raises:
            SessionBroken: The guest takes no input, although it was not left alone.
        """
        if not self._doubted:
            await self.send(*requests)
            return True
        self._doubted, op = False, self.new_op()
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                await self.send(frames.Ping(op=op), *requests)
                await self.reply_to(op)
        except (TimeoutError, AeolusError) as error:
            self._failed(SessionBroken(f"the kernel's host does not answer: {error}"))
        return self.is_usable

    async def next_reply(self) -> replies.Reply:
        """Return the guest's next reply.

        Raises:
            SessionBroken: The guest has ended, or the container was lost.
            GuestProtocolError: The guest sent what no guest of ours sends.
        """
        if self._late:
            self._late_bytes = 0 if len(self._late) == 1 else self._late_bytes
            return self._late.popleft()
        return await self._next()

    def protocol_broken(self, error: frames.FrameError) -> GuestProtocolError:
        """Return the error for a guest that sent what no guest of ours sends, and use the guest no more."""
        # Boundary: such a guest has been taken over or is not ours; nothing more of it is read.
        self._lines.clear()
        failure = GuestProtocolError(f"the guest broke the protocol: {error}")
        self._failed(failure)
        return failure

    async def stop(self, stop: Stop) -> None:
        """Kill the whole container."""
        self._failure = self._failure or SessionBroken("the kernel's container was killed")
        await self._process.stop(stop)

    async def _next(self) -> replies.Reply:
        while not self._lines:
            await self._read()
        self._taken += 1
        if self._taken % _TURN_REPLIES == 0:
            # Boundary: many tiny frames arrive at once; the host's other sessions have their turn in between.
            await asyncio.sleep(0)
        line = self._lines.popleft()
        self._line_bytes = len(line)
        try:
            reply = replies.decode_reply(line)
        except frames.FrameError as error:
            raise self.protocol_broken(error) from error
        self._note(reply)
        return reply

    def _keep_late(self, reply: replies.Reply) -> None:
        """Keep what earlier code says while nobody reads its output, for the next operation."""
        if not isinstance(reply, replies.Stream | replies.Display | replies.Result | replies.Error):
            return
        fitted = self._late_bytes <= _LATE_BYTES
        self._late_bytes += self._line_bytes
        if self._late_bytes <= _LATE_BYTES:
            self._late.append(reply)
        elif fitted:
            self._late.append(replies.Stream(op=0, name="stderr", text="[output left out]\n"))

    def _note(self, reply: replies.Reply) -> None:
        match reply:
            case replies.Ready(protocol=protocol):
                if protocol != frames.PROTOCOL_VERSION:
                    msg = f"the guest speaks protocol {protocol}, we speak {frames.PROTOCOL_VERSION}: rebuild its image"
                    raise self._failed(GuestProtocolError(msg))
                self._booting = False
            case replies.KernelDied():
                self._booting = self.state_lost = True
            case replies.Fault(message=message):
                msg = f"the kernel's host failed: {message[:500]}"
                raise self._failed(SessionBroken(msg))
            case _:
                pass

    def _failed(self, failure: AeolusError) -> AeolusError:
        self._failure = self._failure or failure
        return failure

    async def _read(self) -> None:
        """Take in what the guest has sent; what it says on stderr is kept for the case that it fails."""
        if isinstance(self._failure, GuestProtocolError):
            raise self._failure
        pieces = await self._process.read()
        if not pieces:
            raise self._failed(SessionBroken(await self._last_words()))
        for stream, data in pieces:
            if stream == "stderr":
                self._stderr = (self._stderr + data)[-_STDERR_TAIL_BYTES:]
                continue
            try:
                self._lines.extend(self._splitter.feed(data))
            except frames.FrameError as error:  # told once what came before it has been given
                self._failed(GuestProtocolError(f"the guest broke the protocol: {error}"))
                return

    async def _last_words(self) -> str:
        self.ended = await self._process.wait()
        words = self._stderr.decode("utf-8", "replace").strip()
        return f"the kernel's container has ended ({self.ended})" + (f": {words}" if words else "")
