"""The console approver: only an explicit yes to this very question approves, and nothing is left behind at stdin."""

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aeolus_sandbox.approvers.console import ConsoleApprover
from aeolus_sandbox.streaming.approval import Approve, Decision, Deny, Edit
from tests.unit.console_seat import (
    LIMIT_S,
    PROMPT,
    Screen,
    Seat,
    is_no_answer,
    new_request,
    open_descriptors,
    wait_readable,
)


@pytest.fixture
def pipe() -> Iterator[Seat]:
    seat = Seat(*os.pipe())
    yield seat
    seat.leave()
    seat.stdin.close()


@pytest.fixture
def terminal() -> Iterator[Seat]:
    typing, reading = pty.openpty()
    seat = Seat(reading, typing)
    before = termios.tcgetattr(reading)
    yield seat
    assert termios.tcgetattr(reading) == before
    seat.leave()
    seat.stdin.close()


@pytest.fixture(params=["pipe", "terminal"])
def seat(request: pytest.FixtureRequest) -> Seat:
    found: Seat = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("typed", [b"y\n", b"yes\n", b"Y\n", b"YES\n", b"Yes \n"], ids=repr)
async def test_an_explicit_yes_approves(seat: Seat, typed: bytes) -> None:
    assert await seat.ask(typed) == Approve(by="console")


async def test_a_yes_before_the_end_of_the_input_is_one(pipe: Seat) -> None:
    assert await pipe.ask(b"y\n", pipe.leave) == Approve(by="console")


async def test_a_yes_with_more_behind_it_is_no_answer(pipe: Seat) -> None:
    assert is_no_answer(await pipe.ask(b"y\ny\n"))


async def test_a_yes_that_comes_in_pieces_is_one(pipe: Seat) -> None:
    assert await pipe.ask(b"y", b"e", b"s", b"\n") == Approve(by="console")


NOT_YES = [
    b"\n",
    b"yes please\n",
    b"ye\n",
    b"yy\n",
    b"sure\n",
    b"y n\n",
    b"1\n",
    b"true\n",
    b"\xff\n",
    b"'y'\n",
]


@pytest.mark.parametrize("typed", NOT_YES, ids=repr)
async def test_anything_else_is_no_answer_and_denies(seat: Seat, typed: bytes) -> None:
    assert is_no_answer(await seat.ask(typed))


@settings(deadline=None)  # a busy machine is no fault
@example(line="y")
@example(line="e")
@example(line="No")
@given(line=st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=8))
async def test_no_other_line_approves(line: str) -> None:
    seat = Seat(*os.pipe())
    try:
        decision = await seat.ask(line.encode() + b"\n", seat.leave)
    finally:
        seat.leave()
        seat.stdin.close()
    assert isinstance(decision, Approve) == (line.strip().lower() in {"y", "yes"})
    assert (isinstance(decision, Deny) and decision.answered) == (line.strip().lower() in {"n", "no"})


async def test_an_explicit_no_is_a_no_with_its_reason(seat: Seat) -> None:
    assert await seat.ask(b"No\n", b"it names a customer\n") == Deny(
        by="console", reason="it names a customer", answered=True
    )


async def test_a_no_is_a_no_although_no_reason_follows(pipe: Seat) -> None:
    assert await pipe.ask(b"n\n", pipe.leave) == Deny(by="console", answered=True)


async def test_an_edit_is_read_up_to_a_lone_dot(seat: Seat) -> None:
    decision = await seat.ask(b"e\n", b"first\n", b". second\n", b"\n", b".\n")
    assert decision == Edit(by="console", text="first\n. second\n\n")


async def test_an_edit_of_a_text_without_a_line_end_has_none(pipe: Seat) -> None:
    assert await pipe.ask(b"e\n***\n.\n", request=new_request("secret")) == Edit(by="console", text="***")


async def test_an_edit_that_does_not_end_is_no_answer(pipe: Seat) -> None:
    assert is_no_answer(await pipe.ask(b"e\nhalf\n", pipe.leave))


async def test_an_answer_without_end_is_no_answer(pipe: Seat) -> None:
    def flood() -> None:
        data = b"y" * 65536
        with suppress(BrokenPipeError):
            for _ in range(40):
                os.write(pipe.typing, data)

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        asking = group.create_task(pipe.approver.decide(new_request()))
        await pipe.screen.wait_shown(PROMPT)
        flooding = group.create_task(asyncio.to_thread(flood))
        assert is_no_answer(await asking)
        pipe.stdin.close()  # ends the flood
        await flooding


# Nobody there.


async def test_the_end_of_the_input_is_no_answer(pipe: Seat) -> None:
    assert is_no_answer(await pipe.ask(pipe.leave))


async def test_a_yes_without_a_line_end_before_the_end_is_no_answer(pipe: Seat) -> None:
    assert is_no_answer(await pipe.ask(b"Y", pipe.leave))


async def test_the_end_of_file_key_is_no_answer(terminal: Seat) -> None:
    assert is_no_answer(await terminal.ask(b"\x04"))
    assert is_no_answer(await terminal.ask(b"Y", b"\x04", b"\x04"))


async def test_a_terminal_that_goes_away_is_no_answer() -> None:
    typing, reading = pty.openpty()
    seat = Seat(reading, typing)
    assert is_no_answer(await seat.ask(seat.leave))
    seat.stdin.close()


@pytest.mark.parametrize("content", ["", "y\ny\ny\n"], ids=["empty", "full of yes"])
async def test_a_file_is_no_answer(tmp_path: Path, content: str) -> None:
    path = tmp_path / "answers"
    path.write_text(content)
    with path.open() as stdin:
        async with asyncio.timeout(LIMIT_S):
            assert is_no_answer(await ConsoleApprover(stdin=stdin, stderr=Screen()).decide(new_request()))


async def test_dev_null_is_no_answer() -> None:
    with os.fdopen(os.open(os.devnull, os.O_RDONLY), "r") as stdin:
        async with asyncio.timeout(LIMIT_S):
            assert is_no_answer(await ConsoleApprover(stdin=stdin, stderr=Screen()).decide(new_request()))


async def test_a_closed_stdin_is_no_answer(pipe: Seat) -> None:
    pipe.stdin.close()
    async with asyncio.timeout(LIMIT_S):
        assert is_no_answer(await pipe.approver.decide(new_request()))


async def test_no_stdin_at_all_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    async with asyncio.timeout(LIMIT_S):
        assert is_no_answer(await ConsoleApprover(stderr=Screen()).decide(new_request()))


async def test_a_question_that_cannot_be_shown_is_not_answered(pipe: Seat) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    async with asyncio.timeout(LIMIT_S):
        with os.fdopen(writing, "w", closefd=False) as broken:
            asking = ConsoleApprover(stdin=pipe.stdin, stderr=broken).decide(new_request())
            decision = await asking
            with suppress(OSError):
                broken.close()
    os.close(writing)
    assert is_no_answer(decision)


# Typed before the question appeared.


async def test_what_was_typed_ahead_does_not_count(seat: Seat) -> None:
    seat.type(b"y\n")
    wait_readable(seat.stdin)
    assert await seat.ask(b"n\n", b"\n") == Deny(by="console", answered=True)


async def test_a_line_that_was_begun_ahead_does_not_count(pipe: Seat) -> None:
    pipe.type(b"no, do not say ")
    wait_readable(pipe.stdin)
    assert is_no_answer(await pipe.ask(b"y\n"))


async def test_what_was_typed_after_an_answer_does_not_count_for_the_next_question(seat: Seat) -> None:
    assert await seat.ask(b"n\nbecause\ny\n") == Deny(by="console", reason="because")
    assert is_no_answer(await seat.ask(b"\n"))


async def test_a_program_that_says_yes_for_ever_approves_nothing() -> None:
    decisions = list[Decision]()
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE, text=True) as yes:
        assert yes.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            for _ in range(20):  # it may be late for some, and early for others
                decisions.append(
                    await ConsoleApprover(stdin=yes.stdout, stderr=Screen()).decide(new_request())
                )
        yes.kill()
    assert all(is_no_answer(decision) for decision in decisions)


async def test_the_question_says_what_it_is_for(pipe: Seat) -> None:
    request = new_request("line one\nline two\n")
    await pipe.ask(b"y\n", request=request)
    shown = pipe.screen.getvalue()
    for fact in ("terminal", "session-1", "chunk 3", "role:admin, role:ops", "line two", "18 characters"):
        assert fact in shown
    assert request.content_hash[:12] in shown
    assert request.content_hash[:13] not in shown


async def test_the_result_is_called_the_result(pipe: Seat) -> None:
    await pipe.ask(b"y\n", request=new_request(sequence=-1))
    assert "the result" in pipe.screen.getvalue()


HOSTILE = (
    "\x1b[2J\x1b]0;title\x07 ok\rrm -rf / \u202egnp.exe \x9b31m [bold]not markup[/bold] :smile:\n[y]es / [n]o"
)


@pytest.mark.parametrize("field", ["preview", "tool_name", "session_id"])
async def test_nothing_in_the_question_can_command_the_terminal_or_hide(pipe: Seat, field: str) -> None:
    await pipe.ask(b"y\n", request=new_request(**{field: HOSTILE}))
    shown = pipe.screen.getvalue()
    assert not set("\x1b\x07\r\x9b\u202e") & set(shown)
    assert "\u240d" in shown  # the carriage return that would have written over what stands before it
    for part in ("[bold]not", "markup[/bold]", ":smile:"):
        assert part in shown
    assert sum(line.startswith("[y]es") for line in shown.splitlines()) == 1  # the text stays in its frame


async def test_two_questions_at_once_are_asked_one_after_the_other(pipe: Seat) -> None:
    other = ConsoleApprover(by="other", stdin=pipe.stdin, stderr=pipe.screen)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        first = group.create_task(pipe.approver.decide(new_request(sequence=1)))
        second = group.create_task(other.decide(new_request(sequence=2)))
        await pipe.screen.wait_shown(PROMPT)
        assert "chunk 1" in pipe.screen.getvalue()
        assert "chunk 2" not in pipe.screen.getvalue()
        pipe.type(b"y\n")
        assert await first == Approve(by="console")
        await pipe.screen.wait_shown(PROMPT, 2)
        assert "chunk 2" in pipe.screen.getvalue()
        pipe.type(b"n\n\n")
        assert await second == Deny(by="other", answered=True)


async def test_a_question_that_is_taken_back_leaves_no_reader_behind(seat: Seat) -> None:
    descriptors = open_descriptors()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        asking = group.create_task(seat.approver.decide(new_request()))
        await seat.screen.wait_shown(PROMPT)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        assert "no longer needed" in seat.screen.getvalue()
        await asyncio.sleep(0)
        assert open_descriptors() == descriptors
        seat.type(b"mine\n")  # whoever reads next gets what is typed next
        assert await asyncio.to_thread(os.read, seat.stdin.fileno(), 100) == b"mine\n"


async def test_a_question_that_is_taken_back_lets_the_next_one_be_asked(pipe: Seat) -> None:
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        first = group.create_task(pipe.approver.decide(new_request(sequence=1)))
        second = group.create_task(pipe.approver.decide(new_request(sequence=2)))
        await pipe.screen.wait_shown(PROMPT)
        first.cancel()
        await pipe.screen.wait_shown(PROMPT, 2)
        pipe.type(b"y\n")
        assert await second == Approve(by="console")


# Ctrl-C.


async def test_ctrl_c_is_no_answer_and_is_the_programs_own_again_afterwards(pipe: Seat) -> None:
    before = signal.getsignal(signal.SIGINT)
    decision = await pipe.ask(lambda: signal.raise_signal(signal.SIGINT))
    assert decision == Deny(by="console", reason="interrupted by Ctrl-C", answered=False)
    assert signal.getsignal(signal.SIGINT) is before


CHILD = """
import asyncio, fcntl, termios
from aeolus_sandbox.approvers.console import ConsoleApprover
from aeolus_sandbox.streaming.approval import ApprovalRequest

REQUEST = ApprovalRequest(run_key="r", sequence=0, session_id="s", tool_name="t", approvers=("role:admin",),
                          text="text", preview="text", timeout_s=60)

fcntl.ioctl(0, termios.TIOCSCTTY, 0)

async def main():
    print("decided:", repr(await ConsoleApprover().decide(REQUEST)), flush=True)

asyncio.run(main())
"""


class _Child:
    """A program that asks one question at a terminal of its own."""

    def __init__(self) -> None:
        self.fd, terminal = pty.openpty()
        command = [sys.executable, "-c", CHILD]
        self.process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
        )
        os.close(terminal)
        self.seen = ""

    def wait_shown(self, text: str) -> None:
        until = time.monotonic() + 60
        while text not in self.seen:
            left = until - time.monotonic()
            assert left > 0, self.seen
            assert select.select([self.fd], [], [], left)[0], self.seen
            try:
                self.seen += os.read(self.fd, 4096).decode("utf-8", "replace")
            except OSError:  # it has ended
                assert text in self.seen, self.seen

    def close(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)
        os.close(self.fd)


@pytest.fixture
def child() -> Iterator[_Child]:
    started = _Child()
    yield started
    started.close()


@pytest.mark.parametrize(
    ("typed", "decided"),
    [
        (b"y\r", "Approve("),
        (b"\x03", "answered=False"),
        (b"\x04", "answered=False"),
        (b"no\r\r", "answered=True"),
    ],
    ids=["yes", "ctrl-c", "ctrl-d", "no"],
)
def test_at_a_real_terminal_the_keys_decide(child: _Child, typed: bytes, decided: str) -> None:
    child.wait_shown(PROMPT)
    os.write(child.fd, typed)
    child.wait_shown("decided:")
    child.wait_shown(decided)
