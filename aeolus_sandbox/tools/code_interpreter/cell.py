"""One piece of code under way in a kernel: its chunks, its result, and its end when time is up."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from aeolus_sandbox.errors import SessionBroken
from aeolus_sandbox.exit_status import ExitStatus, Stop
from aeolus_sandbox.guest import frames
from aeolus_sandbox.limits import MIB, LimitName
from aeolus_sandbox.streaming.clipping import ClippedText, clip_text
from aeolus_sandbox.streaming.filters import FilterChain, TextFilter
from aeolus_sandbox.streaming.rendering import render_text
from aeolus_sandbox.tools.code_interpreter import replies
from aeolus_sandbox.tools.code_interpreter.analysis import CodeFinding
from aeolus_sandbox.tools.code_interpreter.bundles import lines_of
from aeolus_sandbox.tools.code_interpreter.cell_input import CellInput
from aeolus_sandbox.tools.code_interpreter.kernel import Kernel
from aeolus_sandbox.tools.code_interpreter.models import CodeChunk, CodeError, CodeResult
from aeolus_sandbox.tools.code_interpreter.translation import Translator

FINDING_TYPE: Final = "application/vnd.aeolus.finding+json"
"""The type of a finding as JSON, beside its words."""
OUTPUT_CHARACTERS: Final = 8000
"""How much of the output a result holds, and how much of the last value."""
INTERRUPT_GRACE_S: Final = 2.0
"""How long code may take to end after it was interrupted, each of two times, before its kernel is killed."""
_KILL_GRACES: Final = 2
"""How many times longer a killed kernel may take to be buried, before its container is killed."""


class Cell:
    """One operation of a kernel."""

    def __init__(
        self,
        kernel: Kernel,
        op: int,
        *,
        keeps_kernel: bool,
        new_filter: Callable[[], TextFilter] = lambda: FilterChain(()),
        grace_s: float = INTERRUPT_GRACE_S,
        findings: tuple[CodeFinding, ...] = (),
    ) -> None:
        self._kernel = kernel
        self._op = op
        self._keeps_kernel = keeps_kernel
        self._grace_s = grace_s
        self._findings = findings
        self._recreated, kernel.state_lost = kernel.state_lost, False
        self._translator = Translator(op)
        self.input = CellInput(kernel, op)
        """Takes the answers to its questions, of which there are only some where the code may ask."""
        self._started = time.monotonic()
        self._output = ClippedText(OUTPUT_CHARACTERS, new_filter=new_filter)
        self._ended = asyncio.Event()
        self._stop: Stop | None = None
        self._status = ExitStatus(reason="exited", code=0)
        self._error: CodeError | None = None
        self._result: str | None = None
        self._images = 0
        self.promised_changes: int | None = None
        """The operation of the list of changed files that the guest sends unasked, where it does."""

    async def chunks(self) -> AsyncIterator[CodeChunk]:
        """Yield the output as it comes, until the kernel says that the code has ended.

        Raises:
            SessionBroken: The engine or the container went away, or the guest failed.
            GuestProtocolError: The guest sent what no guest of ours sends.
        """
        try:
            for finding in self._findings:
                yield _found(finding)
            if self._recreated:
                yield _recreated()
            while not self._ended.is_set():
                reply = await self._kernel.next_reply()
                for chunk in self._taken(reply):
                    yield chunk
                if isinstance(reply, replies.InputRequest) and reply.op == self._op:
                    await self.input.ask()
        except SessionBroken:
            if self._stop is not None:  # we have killed the container ourselves
                self._status = ExitStatus(reason=self._stop.reason, limit_hit=self._stop.limit_hit)
            elif self._kernel.ended is not None:
                # The code has killed the guest, or used up the memory together with it: that is no failure of ours.
                yield self._take_end(self._kernel.ended)
            else:
                raise
        finally:
            self._ended.set()

    async def result(self) -> CodeResult:
        """Return how the code ended."""
        if self._stop is not None:
            status = ExitStatus(
                reason=self._stop.reason, code=self._status.code, limit_hit=self._stop.limit_hit
            )
        else:
            status = self._status
        return CodeResult(
            success=status.ok and self._error is None,
            findings=self._findings,
            status=status,
            execution_time_ms=(time.monotonic() - self._started) * 1000,
            error=self._error,
            result=self._result,
            output=self._output.rendered(render_text),
            images=self._images,
            environment_recreated=self._recreated,
        )

    async def stop(self, stop: Stop) -> None:
        """End the code: interrupt it twice, then kill its kernel, then the container."""
        self._stop = self._stop or stop
        if stop.reason == "cancelled" and not self._keeps_kernel:
            await self._kernel.stop(stop)
            return
        ladder = (
            (self._kernel.interrupt, self._grace_s),
            (self._kernel.interrupt, self._grace_s),
            (self._kernel.kill_kernel, self._grace_s * _KILL_GRACES),
        )
        for attempt, grace_s in ladder:
            if await self._ends_within(grace_s, attempt):
                return
        await self._kernel.stop(stop)

    async def _ends_within(self, grace_s: float, attempt: Callable[[int], Awaitable[None]]) -> bool:
        try:
            async with asyncio.timeout(grace_s):  # a guest that was stopped does not even read
                await attempt(self._op)
                await self._ended.wait()
        except (TimeoutError, SessionBroken):
            return self._ended.is_set()
        return True

    def _taken(self, reply: replies.Reply) -> list[CodeChunk]:
        try:
            return self._take(reply)
        except frames.FrameError as error:
            raise self._kernel.protocol_broken(error) from error

    def _take(self, reply: replies.Reply) -> list[CodeChunk]:
        match reply:
            case replies.Done(op=op) if op == self._op:
                return self._take_done(reply)
            case replies.KernelDied(op=op) if op == self._op:
                return self._take_death(reply)
            case replies.KernelDied():  # an earlier cell ended it, by `exit()` or from a thread
                self._recreated, self._kernel.state_lost = True, False
                return [_recreated()]
            case replies.Error(op=op, name=name, value=value, traceback=traceback) if op == self._op:
                self._error = CodeError(name=name, value=value, traceback=tuple(lines_of(traceback)[0]))
        chunk = self._translator.chunk(reply)
        if chunk is None:
            return []
        if chunk.stream in {"stdout", "stderr"}:
            self._output.feed(chunk.content, flow=chunk.stream)
        elif chunk.stream == "image":
            self._images += 1
        if isinstance(reply, replies.Result) and not chunk.background:
            plain = chunk.alternatives.get("text/plain") or (
                chunk.as_text() if chunk.stream == "result" else None
            )
            self._result = None if plain is None else clip_text(plain, OUTPUT_CHARACTERS)
        return [chunk]

    def _take_done(self, done: replies.Done) -> list[CodeChunk]:
        self._ended.set()
        self.promised_changes = self._op if done.changes_follow else None
        if done.status == "ok":
            return []
        self._status = ExitStatus(reason="exited", code=1)
        if self._error is not None:
            return []
        words = {
            "interrupted": ("KeyboardInterrupt", "the code was interrupted"),
            "aborted": ("NotRun", "the code was not run"),
        }
        name, value = words.get(done.status, ("ExecutionFailed", "the code failed"))
        return [self._fail(name, f"{value}: {done.message}" if done.message else value)]

    def _take_death(self, death: replies.KernelDied) -> list[CodeChunk]:
        self._ended.set()
        code = death.exit_code if death.signal is None else 128 + death.signal
        if death.out_of_memory:
            self._status = ExitStatus(reason="out_of_memory", code=code, limit_hit=LimitName.MEMORY)
            how = f"out of memory, limit {self._memory_limit()}"
        elif death.signal is not None:
            self._status = ExitStatus(reason="killed", code=code)
            how = f"killed by signal {death.signal}"
        else:
            self._status = ExitStatus(reason="exited", code=code)
            how = f"exited with code {code}"
        words = f"\n{death.stderr_tail}" if death.stderr_tail else ""
        return [self._fail("KernelDied", f"the kernel died: {how}; variables are lost{words}")]

    def _take_end(self, ended: ExitStatus) -> CodeChunk:
        self._status = ended if not ended.ok else ExitStatus(reason="killed", code=ended.code)
        how = f"{ended}, with its container"
        if ended.reason == "out_of_memory":
            how += f", limit {self._memory_limit()}"
        return self._fail("KernelDied", f"the kernel died: {how}; variables and files are lost")

    def _memory_limit(self) -> str:
        return f"{self._kernel.limits.memory_bytes / MIB:.0f} MiB"

    def _fail(self, name: str, value: str) -> CodeChunk:
        self._error = CodeError(name=name, value=value)
        return CodeChunk(stream="error", content=f"{name}: {value}")


def _found(finding: CodeFinding) -> CodeChunk:
    alternatives = {FINDING_TYPE: finding.model_dump_json()}
    return CodeChunk(stream="status", content=finding.as_text(), alternatives=alternatives)


def _recreated() -> CodeChunk:
    return CodeChunk(stream="status", content="the kernel was replaced: its variables are lost")
