"""An approver that asks at the terminal; one of the doors to rich.

Boundary: only an explicit yes, a whole line that was typed after this very question appeared, approves. The end of
input, a closed pipe, a blank line, anything else, what was typed ahead and Ctrl-C do not; nor does a yes with more
behind it: that comes from a program which says yes for ever, and only happened to be late.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final
from weakref import WeakKeyDictionary

from aeolus_sandbox.approvers.keyboard import Keyboard, NoAnswer, Wake
from aeolus_sandbox.streaming.approval import ApprovalRequest, Approve, Decision, Deny, Edit
from aeolus_sandbox.streaming.screen import harmless

_HASH_CHARACTERS: Final = 12
_CANCEL_GRACE_S: Final = 2.0
_INTERRUPTED: Final = "interrupted by Ctrl-C"
_NOT_NEEDED: Final = "no longer needed"

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""There is one terminal, whoever asks: one question at a time."""


class ConsoleApprover:
    """Asks whoever sits at the terminal: on stderr, one question after the other, answered on stdin.

    A pipe works as well; what was readable in it before the question appeared does not count. A terminal must be in
    its usual mode, in which it gives whole lines.
    """

    def __init__(
        self, by: str = "console", *, stdin: IO[str] | None = None, stderr: IO[str] | None = None
    ) -> None:
        """Make one.

        Args:
            by: Who sits there.
            stdin: Where answers are read, past its buffer; None: `sys.stdin`.
            stderr: Where questions are shown; None: `sys.stderr`.
        """
        self._by = by
        self._stdin = stdin
        self._stderr = stderr

    async def decide(self, request: ApprovalRequest) -> Decision:
        """Ask, after whoever asks already; a cancelled question is taken back. See `Approver.decide`."""
        loop = asyncio.get_running_loop()
        async with _turns.setdefault(loop, asyncio.Lock()):
            wake = Wake()
            with _on_interrupt(lambda: wake.up(_INTERRUPTED)):
                asking = loop.run_in_executor(None, self._ask, request, wake)
                asking.add_done_callback(lambda _: wake.close())
                try:
                    await asyncio.wait([asking])
                except asyncio.CancelledError:
                    wake.up(_NOT_NEEDED)
                    await asyncio.wait(
                        [asking], timeout=_CANCEL_GRACE_S
                    )  # so that no thread is left at stdin
                    raise
            return asking.result()

    # In a thread of its own: the screen may block, and so may reading.

    def _ask(self, request: ApprovalRequest, wake: Wake) -> Decision:
        screen = _Screen(self._stderr if self._stderr is not None else sys.stderr)
        try:
            keyboard = Keyboard(self._stdin if self._stdin is not None else sys.stdin, wake)
            question = screen.question(request)
            keyboard.forget()
            screen.show(question)
            return self._answer(request, keyboard, screen)
        except NoAnswer as nothing:
            with suppress(NoAnswer):
                screen.show(f"\nnot approved (no answer): {nothing}\n")
            return Deny(by=self._by, reason=str(nothing), answered=False)

    def _answer(self, request: ApprovalRequest, keyboard: Keyboard, screen: "_Screen") -> Decision:
        match keyboard.line().strip().lower():
            case "y" | "yes" if keyboard.is_quiet():
                return Approve(by=self._by)
            case "n" | "no":
                return Deny(by=self._by, reason=_reason(keyboard, screen))
            case "e" | "edit":
                screen.show("the text that passes instead, then a line with nothing but a dot:\n")
                return Edit(by=self._by, text=_replacement(request.text, keyboard))
            case _:
                msg = "the answer was neither yes, no nor edit, alone on its line and with nothing after it"
                raise NoAnswer(msg)


class _Screen:
    """Where questions are shown."""

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream

    def show(self, text: str) -> None:
        """Write a text at once.

        Raises:
            NoAnswer: It cannot be shown, and so nobody can answer it.
        """
        try:
            if self._stream is None:
                raise OSError
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError) as error:
            msg = "the question cannot be shown: there is no screen"
            raise NoAnswer(msg) from error

    def question(self, request: ApprovalRequest) -> str:
        """Return the question as it is written: what it is about, in a frame that no text can leave."""
        # Only now: whoever imports the approver and asks nobody does not pay for rich.
        from rich.console import Console, Group
        from rich.panel import Panel
        from rich.rule import Rule
        from rich.text import Text

        what = "the result" if request.sequence < 0 else f"chunk {request.sequence}"
        facts = Text()
        for name, value in (
            ("tool", request.tool_name),
            ("session", request.session_id),
            ("text", what),
            ("may decide", ", ".join(request.approvers)),
            ("length", f"{len(request.text)} characters, SHA-256 {request.content_hash[:_HASH_CHARACTERS]}"),
        ):
            facts.append(f"{name}: ", style="bold").append(f"{_visible(value)}\n")
        facts.rstrip()
        body = Group(facts, Rule(style="dim"), Text(_visible(request.preview), overflow="fold"))
        console = Console(file=self._stream, highlight=False)
        with console.capture() as captured:
            console.print(Panel(body, title="Does this pass?", title_align="left"))
        return captured.get() + "[y]es / [n]o / [e]dit: "


def _visible(text: str) -> str:
    """Return a text that shows all that is in it: a carriage return would write over what stands before it."""
    return harmless(text.replace("\r\n", "\n")).replace("\r", "\u240d")


def _reason(keyboard: Keyboard, screen: _Screen) -> str:
    try:
        screen.show("why (may be empty): ")
        return keyboard.line().strip()
    except NoAnswer:  # it was denied, whatever became of the reason
        return ""


def _replacement(original: str, keyboard: Keyboard) -> str:
    lines = list(iter(keyboard.line, "."))
    end = "\n" if lines and original.endswith("\n") else ""
    return "\n".join(lines) + end


@contextmanager
def _on_interrupt(call: Callable[[], None]) -> Iterator[None]:
    """Answer the question with Ctrl-C instead of ending the program, where this thread gets signals."""
    previous = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or previous in {None, signal.SIG_IGN}:
        yield
        return

    def interrupted(*_: object) -> None:
        call()

    signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is interrupted:
            signal.signal(signal.SIGINT, previous)
