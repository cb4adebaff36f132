"""One answer of the model: asked for again while that may help, without secrets, and never shown twice."""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Literal

from aeolus_sandbox.errors import AeolusError, ModelError, ModelUnavailable
from aeolus_sandbox.model.chat import Answer, ChatModel, ChatRequest, TextDelta, ThinkingDelta
from aeolus_sandbox.streaming.filters import Filter, FilterChain

Kind = Literal["content", "reasoning"]

_FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 30.0
"""The most that is waited between two attempts, also where the service asks for more."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that failed, and what comes of it."""

    attempt: int
    error: AeolusError
    wait_s: float
    shown_characters: int


@dataclass(slots=True)
class _Shown:
    """What was passed on of one kind of text, over all attempts at one answer."""

    text: str = ""
    """What the present attempt may begin with again: it is not passed on a second time."""
    pieces: list[str] = field(default_factory=list)
    """What the present attempt has said beyond that."""
    repeated: int | None = None
    """How many characters of `text` the present attempt has repeated; None: it has gone on from there, or elsewhere."""

    def begin(self) -> None:
        """Begin another attempt."""
        self.text += "".join(self.pieces)
        self.pieces = []
        self.repeated = 0 if self.text else None

    def new_part(self, piece: str) -> str:
        """Return what of the next piece is to be passed on."""
        if self.repeated is None:
            self.pieces.append(piece)
            return piece
        begin, end = self.repeated, self.repeated + len(piece)
        if not piece.startswith(self.text[begin:end]):
            return self._anew(self.text[:begin] + piece)
        if end <= len(self.text):
            self.repeated = end
            return ""
        new = piece[len(self.text) - begin :]  # it goes on where the attempt before broke off
        self.pieces, self.repeated = [new], None
        return new

    def end(self) -> str:
        """Return what is to be passed on at the end of the answer: it may be shorter than what was shown."""
        if self.repeated is None or self.repeated in {0, len(self.text)}:
            return ""
        return self._anew(self.text[: self.repeated])

    def _anew(self, said: str) -> str:
        """Return an answer that is another one than what was shown: it comes whole."""
        self.text, self.pieces, self.repeated = "", [said], None
        return f"\n{said}"

    @property
    def characters(self) -> int:
        """How many characters of the latest answer have been passed on."""
        return len(self.text) + sum(map(len, self.pieces))


@dataclass(slots=True)
class Asking:
    """How an agent asks its model."""

    model: ChatModel
    attempts: int
    filters: Sequence[Filter]
    """What is taken out of the texts."""
    sleep: Callable[[float], Awaitable[None]]
    on_text: Callable[[Kind, str], Awaitable[None]]
    on_failure: Callable[[FailedAttempt], Awaitable[None]]

    async def ask(self, request: ChatRequest) -> Answer:
        """Return the model's answer, after passing on its texts as they came.

        Raises:
            ModelError: It refused, or failed also at the last attempt.
        """
        shown: dict[Kind, _Shown] = {"content": _Shown(), "reasoning": _Shown()}
        for attempt in range(1, self.attempts + 1):
            try:
                return await _Attempt(self, shown).ask(request)
            except ModelUnavailable as error:
                if attempt == self.attempts:
                    raise
                wait_s = _wait_s(attempt, error)
                characters = shown["content"].characters
                await self.on_failure(FailedAttempt(attempt, error, wait_s, characters))
                await self.sleep(wait_s)
        raise AssertionError("the last attempt returns or raises")  # noqa: EM101 - pragma: no cover


class _Attempt:
    """One attempt at an answer."""

    def __init__(self, asking: Asking, shown: dict[Kind, _Shown]) -> None:
        self._asking = asking
        self._shown = shown
        self._kind: Kind = "content"
        self._filter = FilterChain(asking.filters)
        for each in shown.values():
            each.begin()

    async def ask(self, request: ChatRequest) -> Answer:
        stream: AsyncGenerator[TextDelta | ThinkingDelta | Answer, None] = self._asking.model.stream(request)
        async with aclosing(stream) as pieces:
            async for piece in pieces:
                match piece:
                    case TextDelta(text):
                        await self._take("content", text)
                    case ThinkingDelta(text):
                        await self._take("reasoning", text)
                    case Answer():
                        await self._end()
                        return piece
        msg = f"the stream of the model {self._asking.model.name!r} ended without an answer"
        raise ModelError(msg)

    async def _take(self, kind: Kind, text: str) -> None:
        if kind != self._kind:  # the block before has ended: what is held back of it comes first
            await self._pass_on(self._filter.flush())
            self._kind, self._filter = kind, FilterChain(self._asking.filters)
        await self._pass_on(self._filter.feed(text))

    async def _end(self) -> None:
        await self._pass_on(self._filter.flush())
        for kind, shown in self._shown.items():
            if rest := shown.end():
                await self._asking.on_text(kind, rest)

    async def _pass_on(self, text: str) -> None:
        # Boundary: what was filtered is compared, not what came: half a secret of an attempt that broke off is held
        # back for good, so that the next attempt cannot complete it.
        new = self._shown[self._kind].new_part(text) if text else ""
        if new:
            await self._asking.on_text(self._kind, new)


def _wait_s(attempt: int, error: ModelUnavailable) -> float:
    growing: float = random.uniform(0.5, 1.0) * _FIRST_WAIT_S * 2.0 ** (attempt - 1)  # noqa: S311 - no secret
    return min(max(growing, error.retry_after_s or 0.0), LONGEST_WAIT_S)
