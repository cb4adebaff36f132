"""`Summarise`: a language model's summary in the place of the chunks that it covers."""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Final

from pydantic import Field

from aeolus_sandbox.errors import AeolusError
from aeolus_sandbox.streaming.chunks import C, OutputChunk, Span, SummaryChunk
from aeolus_sandbox.streaming.clipping import clip_text
from aeolus_sandbox.streaming.policies.base import ContextWindow, M, Policy, PolicyContext, PolicyView
from aeolus_sandbox.streaming.policies.summary_prompt import REQUEST_CHARACTERS, Material
from aeolus_sandbox.streaming.rendering import render_text
from aeolus_sandbox.streaming.spool import Record, Spool
from aeolus_sandbox.streaming.text_model import TextModel

_ANSWER_WITHIN_S: Final = 180.0
"""A model has its own time limit; this one is for a model that breaks its promise."""
_BREATHE_EVERY: Final = 256
"""After how many chunks everybody else runs, however many more are there."""


class Summarise(Policy):
    """Give a summary whenever enough has come, which stands for all output so far; the tool never waits for it.

    What comes after the last summary is given as it is where both together are short enough, and else summarised too.
    Where the model fails, the head and tail of the output stand for the summary, which says so.
    """

    takes_batches: ClassVar[bool] = False

    chunk_threshold: int = Field(default=50, ge=1)
    """After how many chunks of the tool there is a new summary; after 60,000 characters in any case."""
    max_summary_length: int = Field(default=2000, ge=1)
    """The longest that a summary may be, in characters."""
    model: str = "anthropic/claude-haiku-4-5"
    """The language model, as `provider/name`."""

    def check(self, text_model: Callable[[str], TextModel]) -> None:
        """Check that there is such a model, and a key for it; see `Policy.check`."""
        text_model(self.model)

    def view(self, spool: Spool[Any], context: PolicyContext) -> "SummariseView[Any]":
        """Return a view of this policy over a spool; see `Policy.view`."""
        return SummariseView(spool, self, context)


class SummariseView(PolicyView[C]):
    """A spool's output in summaries, which a task in the background asks for one after the other."""

    def __init__(self, spool: Spool[C], policy: Summarise, context: PolicyContext) -> None:
        self._spool = spool
        self._policy = policy
        self._model = context.text_model(policy.model)
        self._material = self._after("")
        self._index = 0
        self._taken_chunks = self._taken_characters = 0
        self._covers: list[Span] = []
        self._summary: SummaryChunk | None = None
        self._is_unseen = False
        self._passed_chunks = self._passed_characters = 0
        """What the reader has, or what a summary stands for."""
        self._progress = asyncio.Event()
        self._worker = context.tasks.start(
            self._work(), name=f"summarise session {context.session_id}", awaited=True
        )
        self._worker.add_done_callback(lambda _: self._progress.set())

    async def next_chunk(self) -> C | None:
        """Return the latest summary once there is a new one, after the end also the rest; see `PolicyView.next_chunk`."""
        # After the end of the output the worker's last word counts: a summary that it is replacing now is not given.
        while not self._worker.done() and (self._spool.ended or not self._is_unseen):
            self._progress.clear()
            await self._progress.wait()
        if self._is_unseen:
            self._is_unseen = False
            return self._summary  # type: ignore[return-value] # it stands for chunks of the tool
        if not self._worker.cancelled():
            self._worker.result()
        found = await self._load_next()
        if found is None:
            return None
        record, chunk = found
        self._pass_on(record.chunks, record.characters)
        self._spool.note_read(record)
        return chunk

    def context_window(self) -> ContextWindow:
        """Return what the reader has before it."""
        unseen = self._summary if self._is_unseen else None
        return ContextWindow(
            chunks_held=self._spool.total_chunks - self._passed_chunks + (unseen is not None),
            chunks_dropped=0,
            bytes_dropped=0,
            characters_held=self._spool.total_characters
            - self._passed_characters
            + (0 if unseen is None else len(unseen.text)),
            limit_chunks=None,
            chunks_summarised=0 if self._summary is None else self._summary.chunks,
        )

    async def result(self, final: M) -> M:
        """Return the result as it is, once the last summary is made."""
        await asyncio.wait([self._worker])
        return final

    async def aclose(self) -> None:
        """End the request that is under way."""
        self._worker.cancel()
        await asyncio.wait([self._worker])

    # The background task: it alone takes chunks off until the end of the output, then the reader does.

    async def _work(self) -> None:
        while True:
            if self._is_due():
                await self._summarise()
            elif self._spool.ended:
                break
            else:
                await self._spool.wait_changed()
        if self._is_too_long():
            await self._summarise()

    def _is_due(self) -> bool:
        chunks = self._spool.total_chunks - self._taken_chunks
        enough = chunks >= self._policy.chunk_threshold or self._new_characters >= REQUEST_CHARACTERS
        return enough and self._has_next

    def _is_too_long(self) -> bool:
        summary_length = 0 if self._summary is None else len(self._summary.text)
        return self._has_next and summary_length + self._new_characters > self._policy.max_summary_length

    @property
    def _has_next(self) -> bool:
        return self._spool.record(self._index) is not None

    @property
    def _new_characters(self) -> int:
        return self._spool.total_characters - self._taken_characters

    async def _summarise(self) -> None:
        await self._take_new()
        self._summary = await self._new_summary()
        self._pass_on(
            self._taken_chunks - self._passed_chunks, self._taken_characters - self._passed_characters
        )
        self._is_unseen = True
        self._progress.set()

    async def _take_new(self) -> None:
        for taken in range(self._spool.next_index - self._index):
            if taken % _BREATHE_EVERY == 0:
                await asyncio.sleep(0)
            found = await self._load_next()
            if found is None:
                return
            self._take(*found)

    def _take(self, record: Record, chunk: OutputChunk) -> None:
        self._taken_chunks += record.chunks
        self._taken_characters += record.characters
        self._material.take(chunk)
        start = (
            self._covers.pop().start
            if self._covers and self._covers[-1].end == record.start
            else record.start
        )
        self._covers.append(Span(start, record.end))
        self._spool.note_done(record)

    async def _load_next(self) -> tuple[Record, C] | None:
        record = self._spool.record(self._index)
        chunk = None if record is None else await self._spool.load(record)
        if record is None or chunk is None:
            return None
        self._index += 1
        return record, chunk

    def _pass_on(self, chunks: int, characters: int) -> None:
        self._passed_chunks += chunks
        self._passed_characters += characters

    async def _new_summary(self) -> SummaryChunk:
        try:
            text = await self._ask()
        except Exception as error:  # noqa: BLE001 - whatever the model does, the output goes on
            # The material stays as it is: the next summary is made of all that no model has summarised.
            text = await asyncio.to_thread(self._material.truncated)
            return self._chunk(text, note=_why(error))
        self._material = self._after(text)
        return self._chunk(text, note=None)

    async def _ask(self) -> str:
        """Return the model's summary.

        Raises:
            _NoSummary: There was nothing to summarise, or the answer is not a summary.
            Exception: Whatever the model failed with.
        """
        request = await asyncio.to_thread(self._material.request)  # rendering takes a while
        if request is None:
            raise _NoSummary("there was no output that can be seen")  # noqa: EM101
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            answer = await self._model.complete(
                system=request.system, prompt=request.prompt, max_tokens=request.max_tokens
            )
        if len(answer) > request.given_characters:
            raise _NoSummary("the model's answer was longer than the output")  # noqa: EM101
        # Boundary: a program may talk the model into writing control sequences.
        text = clip_text(render_text(answer).strip(), self._policy.max_summary_length)
        if not text:
            raise _NoSummary("the model's answer was empty")  # noqa: EM101
        return text

    def _after(self, summary: str) -> Material:
        return Material(summary, max_summary_length=self._policy.max_summary_length)

    def _chunk(self, text: str, *, note: str | None) -> SummaryChunk:
        return SummaryChunk(
            span=Span(self._covers[0].start, self._covers[-1].end),
            text=text,
            covers=tuple(self._covers),
            chunks=self._taken_chunks,
            made_by="model" if note is None else "truncation",
            note=note,
        )


class _NoSummary(Exception):
    """There is no summary by the model; the message says why."""


def _why(error: Exception) -> str:
    """Return why no model wrote the summary: the kind of the error alone, whose message may quote anything."""
    if isinstance(error, _NoSummary):
        return str(error)
    kind = type(error).__name__
    return (
        f"the model failed: {error.code} ({kind})"
        if isinstance(error, AeolusError)
        else f"the model failed: {kind}"
    )
