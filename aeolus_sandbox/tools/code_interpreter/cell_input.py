"""Answers what code asks for: lines that a caller sends, one for each question."""

from collections import deque
from typing import Final

from aeolus_sandbox.errors import ConfigurationError, SessionClosed
from aeolus_sandbox.streaming.stdin import EndOfInput, Signal, StdinEvent, Text, UnixSignal
from aeolus_sandbox.tools.code_interpreter.kernel import Kernel

MAX_WAITING_CHARACTERS: Final = 1024 * 1024
"""How much input may wait for questions."""


class CellInput:
    """The input of one piece of code; see `streaming.stdin.StdinSender`.

    A line answers one question, and what comes before a question waits for it. After the end of input every question
    gets the end of input.
    """

    def __init__(self, kernel: Kernel, op: int) -> None:
        self._kernel = kernel
        self._op = op
        self._lines: deque[str] = deque()
        self._unfinished = ""
        self._waiting_characters = 0
        self._questions = 0
        self._ended = False

    async def send(self, event: StdinEvent) -> None:
        """Take an event: text, the end of input, or an interrupt.

        Raises:
            ConfigurationError: It is something else, or too much.
            SessionClosed: The input has ended.
            SessionBroken: The container was lost.
        """
        match event:
            case Text(text):
                self._take(text)
            case EndOfInput():
                self._end()
            case Signal(UnixSignal.SIGINT):
                await self._kernel.interrupt(self._op)
            case Signal(signal):
                msg = (
                    f"code in a kernel takes no {signal}: send SIGINT to interrupt it, or cancel the session"
                )
                raise ConfigurationError(msg)
            case _:
                msg = f"code in a kernel has no terminal and takes lines of text, and not {event!r:.100}: send a Text"
                raise ConfigurationError(msg)
        await self._answer()

    async def ask(self) -> None:
        """Note a question, and answer it if there is something to answer.

        Raises:
            SessionBroken: The container was lost.
        """
        self._questions += 1
        await self._answer()

    def _take(self, text: str) -> None:
        if self._ended:
            msg = "the code's input has ended"
            raise SessionClosed(msg)
        if self._waiting_characters + len(text) > MAX_WAITING_CHARACTERS:
            msg = f"more than {MAX_WAITING_CHARACTERS} characters of input would wait for questions: send less at once"
            raise ConfigurationError(msg)
        self._waiting_characters += len(text)
        # A lone surrogate cannot be sent to any kernel.
        valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        *lines, self._unfinished = (self._unfinished + valid).split("\n")
        self._lines.extend(lines)

    def _end(self) -> None:
        self._ended = True
        if self._unfinished:
            self._lines.append(self._unfinished)
            self._unfinished = ""

    async def _answer(self) -> None:
        while self._questions and (self._lines or self._ended):
            self._questions -= 1
            line = self._lines.popleft() if self._lines else None
            self._waiting_characters -= 0 if line is None else min(self._waiting_characters, len(line) + 1)
            await self._kernel.answer(self._op, None if line is None else line.removesuffix("\r"))
