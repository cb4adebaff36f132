"""`Manual`: nothing passes before somebody has approved exactly that."""

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import (
    ApprovalDenied,
    ApprovalTimedOut,
    SessionClosed,
    StorageError,
)
from aeolus_sandbox.streaming.approval import Decision, Deny, Edit, TimeoutAction
from aeolus_sandbox.streaming.chunks import JsonCodec
from aeolus_sandbox.streaming.policies import Manual
from aeolus_sandbox.streaming.spool import Spool
from aeolus_sandbox.tools.code_interpreter import CodeChunk
from aeolus_sandbox.tools.terminal.models import TerminalChunk, TerminalCodec
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
from tests.unit.policy_contexts import ApprovesAll


@pytest.fixture
async def tasks() -> AsyncIterator[BackgroundTasks]:
    started = BackgroundTasks()
    yield started
    await started.aclose(timeout_s=0.1)


async def test_chunks_are_asked_about_one_at_a_time_and_pass_in_order(tasks: BackgroundTasks) -> None:
    office = Office()
    view = manual_view(line_spool("a", "b"), office, tasks)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        reading = group.create_task(next_of(view))
        await office.wait_asked()
        assert not reading.done()
        office.say(YES)
        assert (await reading).text == "a"
        assert len(office.asked) == 1  # the second is not asked about before somebody wants it
        office.say(YES)
        assert await texts_of(view) == ["b"]
    assert [request.sequence for request in office.asked] == [0, 1]


async def test_the_request_says_what_it_is_for(tasks: BackgroundTasks) -> None:
    office = Office(YES)
    policy = Manual(approvers=("role:ops",), preview_length=60, timeout_s=5)
    view = manual_view(line_spool("x" * 1000), office, tasks, policy, run_key="key")
    async with asyncio.timeout(10):
        await view.next_chunk()
    (request,) = office.asked
    assert request.text == Line(text="x" * 1000).as_text()
    assert len(request.preview) <= 60
    assert "left out" in request.preview
    assert (request.run_key, request.session_id, request.tool_name) == ("key", "session", "tool")
    assert (request.approvers, request.timeout_s) == (("role:ops",), 5)


async def test_a_denied_chunk_does_not_pass_and_the_next_call_goes_on(tasks: BackgroundTasks) -> None:
    office = Office(NO, YES)
    view = manual_view(line_spool("secret", "b"), office, tasks)
    async with asyncio.timeout(10):
        with pytest.raises(ApprovalDenied, match="denied by 'role:admin': too much") as caught:
            await view.next_chunk()
        assert "secret" not in str(caught.value)
        assert await texts_of(view) == ["b"]


async def test_nobody_could_answer_is_told_from_a_no(tasks: BackgroundTasks) -> None:
    office = Office(Deny(by="console", reason="the input has ended", answered=False))
    async with asyncio.timeout(10):
        with pytest.raises(
            ApprovalDenied, match=r"not approved \(no answer\): the input has ended"
        ) as caught:
            await manual_view(line_spool("a"), office, tasks).next_chunk()
    assert "denied by" not in str(caught.value)


async def test_an_edited_text_passes_in_the_place_of_the_chunk(tasks: BackgroundTasks) -> None:
    codec = TerminalCodec()
    spool: Spool[TerminalChunk] = Spool(codec, capacity_bytes=1000)
    spool.append(*codec.encode(TerminalChunk(stream="stderr", data=b"token=abc\n")))
    spool.end()
    async with asyncio.timeout(10):
        chunk = await next_of(manual_view(spool, Office(Edit(by="a", text="token=***\n")), tasks))
    assert (chunk.stream, chunk.data) == ("stderr", b"token=***\n")
    assert chunk.span == (0, 10)


async def test_an_edit_that_makes_no_chunk_is_a_denial_that_says_why(tasks: BackgroundTasks) -> None:
    office = Office(Edit(by="a", text="no json"), YES)
    view = manual_view(line_spool("a", "b"), office, tasks)
    async with asyncio.timeout(10):
        with pytest.raises(ApprovalDenied, match="denied by 'a': the edited text does not fit") as caught:
            await view.next_chunk()
        assert "no json" not in str(caught.value)
        assert await texts_of(view) == ["b"]
    assert view.context_window().chunks_withheld == 1


async def test_a_cancelled_next_chunk_neither_loses_the_chunk_nor_asks_twice(tasks: BackgroundTasks) -> None:
    office = Office()
    view = manual_view(line_spool("a"), office, tasks)
    async with asyncio.timeout(10):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await view.next_chunk()
        await office.wait_asked()
        office.say(YES)
        assert await texts_of(view) == ["a"]
    assert len(office.asked) == 1


async def test_cancelled_at_any_moment_everything_passes_once_and_in_order(tasks: BackgroundTasks) -> None:
    chance, spool, found = random.Random(3), line_spool(ended=False), list[str]()
    office = ApprovesAll()
    view = manual_view(spool, office, tasks)
    codec = JsonCodec(Line)

    async def pump() -> None:
        for number in range(200):
            spool.append(*codec.encode(Line(text=str(number))))
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        spool.end()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(pump())
        while True:
            reading = group.create_task(view.next_chunk())
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            if reading.cancelled():
                continue
            if (chunk := reading.result()) is None:
                break
            found.append(chunk.text)
    assert found == [str(number) for number in range(200)]
    assert [request.sequence for request in office.asked] == list(range(200))


async def test_over_time_it_is_denied_as_a_time_out_and_not_as_a_no(tasks: BackgroundTasks) -> None:
    office = Office()
    view = manual_view(line_spool("a", "b"), office, tasks, Manual(timeout_s=0.01))
    async with asyncio.timeout(10):
        with pytest.raises(ApprovalTimedOut, match=r"nobody decided within 0\.01 s") as caught:
            await view.next_chunk()
        assert not isinstance(caught.value, ApprovalDenied)
        office.prepared.append(YES)
        assert await texts_of(view) == ["b"]
    assert [request.sequence for request in office.expired] == [0]
    assert view.context_window().chunks_withheld == 1


@pytest.mark.parametrize("late", [YES, NO], ids=["yes", "no"])
async def test_a_decision_at_the_last_moment_counts(late: Decision, tasks: BackgroundTasks) -> None:
    office = Office()
    office.late = late
    async with asyncio.timeout(10):
        texts = await texts_of(manual_view(line_spool("a"), office, tasks, Manual(timeout_s=0.01)))
    assert texts == ["a" if late is YES else "ApprovalDenied"]


async def test_over_time_it_passes_where_the_policy_says_so(tasks: BackgroundTasks) -> None:
    policy = Manual(timeout_s=0.01, timeout_action=TimeoutAction.APPROVE)
    async with asyncio.timeout(10):
        assert await texts_of(manual_view(line_spool("a"), Office(), tasks, policy)) == ["a"]


async def test_over_time_the_session_is_halted_and_nothing_more_comes(tasks: BackgroundTasks) -> None:
    halted, office = list[int](), Office()
    spool = line_spool("a", "b", ended=False)

    def halt() -> None:
        halted.append(len(office.asked))
        spool.end()

    policy = Manual(timeout_s=0.01, timeout_action=TimeoutAction.HALT)
    view = manual_view(spool, office, tasks, policy, halt=halt)
    async with asyncio.timeout(10):
        assert await texts_of(view) == ["ApprovalTimedOut"]
        assert await texts_of(view) == []
        assert halted == [1]
        result = await view.result(WithOutput())
        assert result.output == "[1 chunk withheld: not approved]\n\n[1 chunk withheld: not decided yet]\n"
        with pytest.raises(ApprovalTimedOut, match="halted"):
            await view.result(Plain(said="a"))
    assert len(office.asked) == 1


async def test_a_time_out_of_the_approvals_own_is_not_ours(tasks: BackgroundTasks) -> None:
    policy = Manual(timeout_s=FOREVER_S, timeout_action=TimeoutAction.APPROVE)
    async with asyncio.timeout(10):
        with pytest.raises(ApprovalDenied, match=r"no answer.*TimeoutError"):
            await manual_view(line_spool("a"), Office(TimeoutError()), tasks, policy).next_chunk()


async def test_whatever_goes_wrong_while_asking_denies_and_repeats_no_text(tasks: BackgroundTasks) -> None:
    office = Office(RuntimeError("it said secret"), YES)
    view = manual_view(line_spool("a", "b"), office, tasks)
    async with asyncio.timeout(10):
        with pytest.raises(ApprovalDenied, match=r"not approved \(no answer\)") as caught:
            await view.next_chunk()
        assert "secret" not in str(caught.value)
        assert await texts_of(view) == ["b"]


async def test_a_question_that_could_not_be_kept_is_asked_again(tasks: BackgroundTasks) -> None:
    office = Office(StorageError("no room"), YES)
    view = manual_view(line_spool("a"), office, tasks)
    async with asyncio.timeout(10):
        with pytest.raises(StorageError):
            await view.next_chunk()
        assert view.context_window().chunks_held == 1
        assert await texts_of(view) == ["a"]
    assert [request.sequence for request in office.asked] == [0, 0]


async def test_the_clock_stands_still_exactly_while_a_decision_is_waited_for(tasks: BackgroundTasks) -> None:
    office, moves = Office(), list[str]()

    @contextmanager
    def paused() -> Iterator[None]:
        moves.append(f"still, {len(office.asked)} asked")
        yield
        moves.append(f"on, {len(office.asked)} asked")

    view = manual_view(line_spool("a"), office, tasks, pause_clock=paused)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        reading = group.create_task(view.next_chunk())
        await office.wait_asked()
        reading.cancel()
        await asyncio.wait([reading])
        assert moves == ["still, 0 asked"]  # the decision is waited for although nobody reads
        office.say(YES)
        assert await texts_of(view) == ["a"]
    assert moves == ["still, 0 asked", "on, 1 asked"]


async def test_the_window_counts_what_waits_and_what_was_withheld(tasks: BackgroundTasks) -> None:
    office = Office()
    view = manual_view(line_spool("aa", "bb", "cc"), office, tasks)
    characters = view.context_window().characters_held
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        assert view.context_window().chunks_held == 3
        reading = group.create_task(view.next_chunk())
        await office.wait_asked()
        assert view.context_window().chunks_held == 3
        assert view.context_window().characters_held in {characters, characters - 1}  # the line's end
        reading.cancel()
        await asyncio.wait([reading])
        office.say(YES)
        await asyncio.wait([view._asking])  # type: ignore[attr-defined]
        assert view.context_window().chunks_held == 3  # approved, and not fetched
        assert (await next_of(view)).text == "aa"
        assert view.context_window().chunks_held == 2
        office.say(NO)
        with pytest.raises(ApprovalDenied):
            await view.next_chunk()
    assert (view.context_window().chunks_held, view.context_window().chunks_withheld) == (1, 1)


async def test_closing_withdraws_what_is_pending_and_ends_the_waiting(tasks: BackgroundTasks) -> None:
    office = Office()
    view = manual_view(line_spool("a"), office, tasks)

    async def is_told(waiting: Coroutine[Any, Any, Any]) -> None:
        with pytest.raises(SessionClosed, match="before anybody decided"):
            await waiting

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(is_told(view.next_chunk()))
        group.create_task(is_told(view.result(Plain(said="a"))))
        await office.wait_asked(2)
        await view.aclose()
    assert sorted(request.sequence for request in office.withdrawn) == [-1, 0]


async def test_closing_withdraws_nothing_that_was_decided(tasks: BackgroundTasks) -> None:
    office = Office(YES)
    view = manual_view(line_spool("a"), office, tasks)
    async with asyncio.timeout(10):
        await texts_of(view)
        await view.aclose()
    assert office.withdrawn == []


async def test_the_hash_binds_the_image_and_not_only_what_is_said_of_it(tasks: BackgroundTasks) -> None:
    codec = JsonCodec(CodeChunk)
    spool: Spool[CodeChunk] = Spool(codec, capacity_bytes=1000)
    for content in ("AAAA", "BBBB"):
        spool.append(*codec.encode(CodeChunk(stream="image", content=content, mime_type="image/png")))
    spool.end()
    office = Office(YES, YES)
    view = manual_view(spool, office, tasks)
    async with asyncio.timeout(10):
        while await view.next_chunk() is not None:
            pass
    first, second = office.asked
    assert first.text == second.text
    assert first.content_hash != second.content_hash


@pytest.mark.parametrize(
    "wrong",
    [
        {"approvers": ()},
        {"approvers": ("",)},
        {"timeout_s": 0},
        {"timeout_s": float("inf")},
        {"preview_length": -1},
    ],
    ids=repr,
)
def test_a_policy_under_which_nothing_could_pass_or_wait_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Manual(**wrong)
