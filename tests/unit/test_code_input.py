"""Questions of the code and a caller's answers: one line a question, kept until it is asked, and never too many."""

import asyncio

import pytest

from aeolus_sandbox import (
    Bytes,
    ConfigurationError,
    EndOfInput,
    Resize,
    SessionBroken,
    SessionClosed,
    Signal,
    StdinEvent,
    Text,
    UnixSignal,
)
from aeolus_sandbox.guest import frames
from aeolus_sandbox.tools.code_interpreter.cell import Cell
from aeolus_sandbox.tools.code_interpreter.cell_input import MAX_WAITING_CHARACTERS
from tests.unit.scripted_guest import PATIENCE_S, ScriptedProcess, read_all, text

DONE = frames.Done(op=1, status="ok")


def question(prompt: str = "? ", *, op: int = 1, password: bool = False) -> frames.InputRequest:
    return frames.InputRequest(op=op, prompt=prompt, password=password)


def answers(process: ScriptedProcess) -> list[str | None]:
    """Return what the guest was sent as answers."""
    return [request.text for request in process.requests if isinstance(request, frames.InputReply)]


async def send(cell: Cell, *events: StdinEvent) -> None:
    for event in events:
        await cell.input.send(event)


async def test_question_is_a_chunk_with_its_prompt(process: ScriptedProcess, cell: Cell) -> None:
    process.say(text(1, "before"), question("name? "), question("", password=True), DONE)
    chunks = await read_all(cell)
    assert [(chunk.stream, chunk.content, chunk.password) for chunk in chunks] == [
        ("stdout", "before", False),
        ("input", "name? ", False),
        ("input", "", True),
    ]
    assert [chunk.as_text() for chunk in chunks[1:]] == ["name? ", "[the code asks for input]"]
    assert (await cell.result()).output == "before"


@pytest.mark.parametrize(
    ("events", "questions", "sent"),
    [
        ([Text("a\n")], 1, ["a"]),
        ([Text("a\nb\n")], 1, ["a"]),
        ([Text("a\nb\n")], 3, ["a", "b"]),
        ([Text("a"), Text("b"), Text("c\nd")], 2, ["abc"]),
        ([Text("a\r\n\r\n\n")], 3, ["a", "", ""]),
        ([Text("a\ud800\n")], 1, ["a\ufffd"]),
        ([EndOfInput()], 2, [None, None]),
        ([Text("a\nb"), EndOfInput()], 4, ["a", "b", None, None]),
        ([Text("a\n")], 0, []),
    ],
)
async def test_each_question_gets_the_next_line(
    process: ScriptedProcess,
    cell: Cell,
    events: list[StdinEvent],
    questions: int,
    sent: list[str | None],
) -> None:
    await send(cell, *events)
    process.say(*(question() for _ in range(questions)), DONE)
    await read_all(cell)
    assert answers(process) == sent


async def test_answer_that_comes_after_its_question_is_sent_at_once(
    process: ScriptedProcess, cell: Cell
) -> None:
    process.say(question())
    chunks = cell.chunks()
    await anext(chunks)

    async def answer() -> None:
        await send(cell, Text("late"))
        assert answers(process) == []
        await send(cell, Text("r\n"))
        assert answers(process) == ["later"]
        process.say(DONE)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(answer())
        assert [chunk async for chunk in chunks] == []


async def test_question_of_another_operation_is_not_answered(process: ScriptedProcess, cell: Cell) -> None:
    await send(cell, Text("a\n"))
    process.say(question(op=7), DONE)
    assert await read_all(cell) == []
    assert answers(process) == []


async def test_nothing_follows_the_end_of_input(cell: Cell) -> None:
    await send(cell, EndOfInput(), EndOfInput())
    with pytest.raises(SessionClosed):
        await send(cell, Text("a\n"))


async def test_input_that_nobody_asks_for_is_bounded(process: ScriptedProcess, cell: Cell) -> None:
    await send(cell, Text("x" * (MAX_WAITING_CHARACTERS - 2)), Text("\n"))
    with pytest.raises(ConfigurationError, match="wait for questions"):
        await send(cell, Text("yy"))
    process.say(question(), DONE)
    await read_all(cell)
    assert [len(answer or "") for answer in answers(process)] == [MAX_WAITING_CHARACTERS - 2]
    await send(cell, Text("z" * MAX_WAITING_CHARACTERS))  # there is room again


async def test_interrupt_goes_to_the_cell(process: ScriptedProcess, cell: Cell) -> None:
    await send(cell, Signal(UnixSignal.SIGINT))
    assert process.requests[1:] == [frames.Interrupt(op=1)]


@pytest.mark.parametrize(
    "event", [Bytes(b"x"), Resize(80, 24), Signal(UnixSignal.SIGTERM), Signal(UnixSignal.SIGKILL)]
)
async def test_what_a_kernel_cannot_take_is_refused(
    process: ScriptedProcess, cell: Cell, event: StdinEvent
) -> None:
    with pytest.raises(ConfigurationError, match="code in a kernel"):
        await send(cell, event)
    assert len(process.requests) == 1


async def test_answer_that_the_guest_does_not_read_breaks_the_session(
    process: ScriptedProcess, cell: Cell
) -> None:
    process.takes_input.clear()
    await send(cell, Text("a\n"))
    process.say(question())
    with pytest.raises(SessionBroken, match=r"0\.2 s"):
        await read_all(cell)


async def test_flood_of_questions_is_answered_as_far_as_there_are_lines(
    process: ScriptedProcess, cell: Cell
) -> None:
    await send(cell, Text("a\nb\n"))
    process.say(*(question() for _ in range(10_000)), DONE)
    assert len(await read_all(cell)) == 10_000
    assert answers(process) == ["a", "b"]
