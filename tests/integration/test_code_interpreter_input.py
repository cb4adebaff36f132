"""Code that asks for input gets a caller's answers, or the end of input; without leave it is never waited for."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aeolus_sandbox import (
    Bytes,
    CodeChunk,
    ConfigurationError,
    EndOfInput,
    LimitName,
    NotInteractive,
    Resize,
    SessionManager,
    Signal,
    Text,
    UnixSignal,
)
from tests.integration.code_runs import CodeSession, finish, open_code, run_code, shared_manager
from tests.integration.running import PATIENCE_S

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SessionManager]:
    async with shared_manager() as manager:
        yield manager


async def asking(shared: SessionManager, code: str, **settings: Any) -> CodeSession:
    """Start a cell that may ask, in the kernel that this module's tests share."""
    return await open_code(shared, code, session_id="input", **({"allow_stdin": True} | settings))


async def until_question(session: CodeSession) -> tuple[str, CodeChunk]:
    """Read until the code asks, and return the text before and the question."""
    seen = ""
    async with asyncio.timeout(PATIENCE_S):
        while (chunk := await session.next_chunk()) is not None:
            if chunk.stream == "input":
                return seen, chunk
            seen += chunk.content
    raise AssertionError(f"the code has not asked: {seen!r}")


async def rest_of(session: CodeSession) -> str:
    """Read the printed text up to the end."""
    async with asyncio.timeout(PATIENCE_S):
        return "".join([chunk.content async for chunk in session if chunk.stream == "stdout"])


async def test_conversation_with_the_code(shared: SessionManager) -> None:
    code = (
        "print('hello')\nname = input('name? ')\nprint('hi', name)\n"
        "from getpass import getpass\nprint(len(getpass('secret: ')))\n"
        "try:\n    input()\nexcept EOFError:\n    print('over')"
    )
    async with await asking(shared, code) as session:
        before, question = await until_question(session)
        assert (before, question.content, question.password) == ("hello\n", "name? ", False)
        await session.send_stdin(Text("Zoë\n"))
        before, question = await until_question(session)
        assert (before, question.content, question.password) == ("hi Zoë\n", "secret: ", True)
        await session.send_stdin(Text("12"))
        await session.send_stdin(Text("345\n"))
        before, question = await until_question(session)
        assert (before, question.content) == ("5\n", "")
        await session.send_stdin(EndOfInput())
        assert await rest_of(session) == "over\n"
        result = await finish(session)
    assert result.success
    assert result.output == "hello\nhi Zoë\n5\nover\n"  # neither prompts nor answers


async def test_text_sent_ahead_answers_the_questions_that_come(shared: SessionManager) -> None:
    async with await asking(shared, "print([input() for _ in range(3)])") as session:
        await session.send_stdin(Text("a\nb\nc\nnever asked for\n"))
        assert await rest_of(session) == "['a', 'b', 'c']\n"
    async with await asking(shared, "print(input())") as session:  # what was left is not there any more
        await until_question(session)
        await session.send_stdin(Text("fresh\n"))
        assert await rest_of(session) == "fresh\n"


async def test_interrupt_ends_the_question_and_keeps_the_state(shared: SessionManager) -> None:
    async with await asking(shared, "kept = 5\ninput('? ')") as session:
        await until_question(session)
        await session.send_stdin(Signal(UnixSignal.SIGINT))
        result = await finish(session)
    assert result.error is not None
    assert (result.error.name, result.status.reason) == ("KeyboardInterrupt", "exited")
    assert (await run_code(shared, "kept", session_id="input")).result.result == "5"


async def test_question_that_nobody_answers_ends_with_the_time_limit(shared: SessionManager) -> None:
    async with await asking(shared, "kept = 6\ninput('? ')", timeout_s=1) as session:
        await until_question(session)
        result = await finish(session)
    assert (result.status.reason, result.status.limit_hit) == ("timed_out", LimitName.WALL_TIME)
    ran = await run_code(shared, "kept", session_id="input")
    assert (ran.result.result, ran.result.environment_recreated) == ("6", False)


async def test_without_leave_the_tool_is_read_only(shared: SessionManager) -> None:
    async with await asking(shared, "input('? ')", allow_stdin=False) as session:
        with pytest.raises(NotInteractive):
            await session.send_stdin(Text("x\n"))
        result = await finish(session)
    assert result.error is not None
    assert result.error.name == "StdinNotImplementedError"


async def test_what_a_kernel_cannot_take_is_refused_and_nothing_breaks(shared: SessionManager) -> None:
    async with await asking(shared, "print(input())") as session:
        await until_question(session)
        for event in (Bytes(b"x\n"), Resize(80, 24), Signal(UnixSignal.SIGKILL)):
            with pytest.raises(ConfigurationError, match="code in a kernel"):
                await session.send_stdin(event)
        await session.send_stdin(Text("fine\n"))
        assert await rest_of(session) == "fine\n"
