"""`Manual` in a session: its result says nothing that was withheld, and waiting costs the run nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import (
    ApprovalDenied,
    ApprovalTimedOut,
    SessionBroken,
    StorageError,
)
from aeolus_sandbox.exit_status import Stop
from aeolus_sandbox.limits import LimitName, Limits
from aeolus_sandbox.streaming.approval import Decision, Edit, TimeoutAction
from aeolus_sandbox.streaming.chunks import JsonCodec
from aeolus_sandbox.streaming.policies import Manual
from aeolus_sandbox.streaming.session import StreamingToolSession
from aeolus_sandbox.streaming.tool import CancelToken, StreamingToolHandle
from tests.unit.manual_office import (
    FOREVER_S,
    NO,
    YES,
    Line,
    Office,
    Plain,
    WithOutput,
    line_spool,
    manual_view,
    next_of,
    texts_of,
)
from tests.unit.policy_contexts import ApprovesAll, session_services


@pytest.fixture
async def tasks() -> AsyncIterator[BackgroundTasks]:
    started = BackgroundTasks()
    yield started
    await started.aclose(timeout_s=0.1)


async def test_the_result_says_what_passed_and_where_something_is_missing(tasks: BackgroundTasks) -> None:
    office = Office(YES, NO, NO, Edit(by="a", text='{"text":"edited"}'))
    view = manual_view(line_spool("one", "two", "three", "four", "five"), office, tasks)
    async with asyncio.timeout(10):
        for _ in range(4):
            try:
                await view.next_chunk()
            except ApprovalDenied:
                continue
        result = await view.result(WithOutput(code=3))
        again = await view.result(WithOutput(code=3))
    assert result == again
    assert result.code == 3
    assert result.output.splitlines() == [
        '{"text":"one"}',
        "[2 chunks withheld: not approved]",
        '{"text":"edited"}',
        "[1 chunk withheld: not decided yet]",
    ]
    assert len(office.asked) == 4


async def test_the_result_of_a_run_that_nobody_read_says_nothing_of_it(tasks: BackgroundTasks) -> None:
    view = manual_view(line_spool("one", "two"), Office(), tasks)
    async with asyncio.timeout(10):
        assert (await view.result(WithOutput())).output == "[2 chunks withheld: not decided yet]\n"


async def test_a_result_of_which_nothing_was_streamed_needs_an_approval_unless_it_is_empty(
    tasks: BackgroundTasks,
) -> None:
    office = Office(NO)
    view = manual_view(line_spool(), office, tasks)
    async with asyncio.timeout(10):
        assert await view.result(WithOutput(output="")) == WithOutput(output="")
        with pytest.raises(ApprovalDenied):
            await view.result(WithOutput(output="stored by an earlier run"))
    assert len(office.asked) == 1


async def test_a_long_result_keeps_the_head_and_the_tail_of_what_passed(tasks: BackgroundTasks) -> None:
    view = manual_view(line_spool(*(f"{n:04d}" * 100 for n in range(50)), "last"), ApprovesAll(), tasks)
    async with asyncio.timeout(10):
        await texts_of(view)
        output = (await view.result(WithOutput())).output
    assert len(output) <= 8100
    assert "characters left out" in output
    assert "last" in output


async def test_any_other_result_needs_one_approval_of_its_own(tasks: BackgroundTasks) -> None:
    office = Office(YES)
    view = manual_view(line_spool(), office, tasks)
    final = Plain(said="secret")
    async with asyncio.timeout(10):
        assert await view.result(final) is final
        assert await view.result(final) is final
    (request,) = office.asked
    assert (request.sequence, request.text) == (-1, '{"said":"secret"}')


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (NO, "denied by 'role:admin': too much"),
        (Edit(by="a", text='{"said":"***"}'), Plain(said="***")),
        (Edit(by="a", text='{"other":1}'), "the edited text does not fit: Field required"),
    ],
    ids=["denied", "edited", "edited badly"],
)
async def test_a_result_that_was_decided_on_stays_decided(
    decision: Decision, expected: str | Plain, tasks: BackgroundTasks
) -> None:
    office = Office(decision)
    view = manual_view(line_spool(), office, tasks)
    async with asyncio.timeout(10):
        for _ in range(2):
            if isinstance(expected, str):
                with pytest.raises(ApprovalDenied, match=expected):
                    await view.result(Plain(said="secret"))
            else:
                assert await view.result(Plain(said="secret")) == expected
    assert len(office.asked) == 1


async def test_a_cancelled_finalize_does_not_ask_twice(tasks: BackgroundTasks) -> None:
    office = Office()
    view = manual_view(line_spool(), office, tasks)
    async with asyncio.timeout(10):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await view.result(Plain(said="a"))
        await office.wait_asked()
        office.say(YES)
        assert await view.result(Plain(said="a")) == Plain(said="a")
    assert len(office.asked) == 1


async def test_a_result_that_nobody_could_be_asked_about_is_asked_about_again(tasks: BackgroundTasks) -> None:
    view = manual_view(line_spool(), Office(StorageError("no room"), YES), tasks)
    async with asyncio.timeout(10):
        with pytest.raises(StorageError):
            await view.result(Plain(said="a"))
        assert await view.result(Plain(said="a")) == Plain(said="a")


class _Tool:
    """One running tool: it streams its lines at once, and then runs until it is ended."""

    def __init__(self, *lines: str | Exception) -> None:
        self.lines = lines
        self.ended = asyncio.Event()

    async def chunks(self) -> AsyncIterator[Line]:
        for line in self.lines:
            if isinstance(line, Exception):
                raise line
            yield Line(text=line)
        await self.ended.wait()

    async def _end(self, stop: Stop) -> None:
        self.ended.set()

    async def _result(self) -> WithOutput:
        return WithOutput()

    async def _release(self) -> None:
        return None

    def open(
        self, tasks: BackgroundTasks, office: Any, policy: Manual | None = None, **limits: Any
    ) -> StreamingToolSession[Line, WithOutput]:
        return StreamingToolSession(
            StreamingToolHandle(chunks=self.chunks(), finalize=self._result(), cancel=CancelToken(self._end)),
            session_id="s",
            tool_name="t",
            policy=policy or Manual(timeout_s=FOREVER_S),
            codec=JsonCodec(Line),
            limits=Limits.model_validate(limits),
            services=session_services(tasks, approvals=office),
            release=self._release,
        )


async def test_the_wall_clock_stands_still_while_a_decision_is_pending_and_goes_on_afterwards(
    tasks: BackgroundTasks,
) -> None:
    office, tool = Office(), _Tool("a")
    async with asyncio.timeout(30), tool.open(tasks, office, wall_time_s=1.0) as session:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(next_of(session))
            await office.wait_asked()
            await asyncio.sleep(1.5)  # longer than the run may take
            assert not tool.ended.is_set()
            office.say(YES)
            assert (await reading).text == "a"
        assert await session.next_chunk() is None
        assert session.status is not None
        assert session.status.limit_hit == LimitName.WALL_TIME


async def test_a_denial_ends_the_async_for_and_not_the_session(tasks: BackgroundTasks) -> None:
    office, found, tool = Office(YES, NO, YES), list[str](), _Tool("a", "b", "c")
    tool.ended.set()

    async def read() -> None:
        async for chunk in session:
            found.append(chunk.text)

    async with asyncio.timeout(10), tool.open(tasks, office) as session:
        with pytest.raises(ApprovalDenied):
            await read()
        found += [chunk.text async for chunk in session]
    assert found == ["a", "c"]


async def test_a_tool_that_ends_meanwhile_leaves_the_question_standing(tasks: BackgroundTasks) -> None:
    office, tool = Office(), _Tool("a")
    async with asyncio.timeout(10), tool.open(tasks, office) as session, asyncio.TaskGroup() as group:
        reading = group.create_task(next_of(session))
        await office.wait_asked()
        tool.ended.set()
        assert (await session.finalize()).output == "[1 chunk withheld: not decided yet]\n"
        assert not reading.done()
        office.say(YES)
        assert (await reading).text == "a"
        assert (await session.finalize()).output == '{"text":"a"}'
        assert await session.next_chunk() is None


async def test_a_broken_session_gives_what_is_approved_before_it_says_so(tasks: BackgroundTasks) -> None:
    office, tool = Office(YES, NO), _Tool("a", "b", SessionBroken("the container is gone"))
    async with asyncio.timeout(10), tool.open(tasks, office) as session:
        assert (await next_of(session)).text == "a"
        with pytest.raises(ApprovalDenied):
            await session.next_chunk()
        with pytest.raises(SessionBroken, match="container is gone"):
            await session.next_chunk()


async def test_halting_ends_the_run(tasks: BackgroundTasks) -> None:
    policy = Manual(timeout_s=0.01, timeout_action=TimeoutAction.HALT)
    tool = _Tool("a", "b")
    async with asyncio.timeout(10), tool.open(tasks, Office(), policy) as session:
        with pytest.raises(ApprovalTimedOut):
            await session.next_chunk()
        assert await session.next_chunk() is None
        assert session.status is not None
        assert session.status.reason == "cancelled"


async def test_leaving_a_session_withdraws_its_question(tasks: BackgroundTasks) -> None:
    office = Office()
    async with asyncio.timeout(10), _Tool("a").open(tasks, office) as session:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await session.next_chunk()
        await office.wait_asked()
    assert [request.sequence for request in office.withdrawn] == [0]
    assert (await session.finalize()).output == "[1 chunk withheld: not decided yet]\n"
