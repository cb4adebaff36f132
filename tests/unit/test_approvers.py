"""Approvers: what a function, a program or several together decide, and that nothing passes by accident."""

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.approvers import AllOf, AnyOf, CallbackApprover, QueueApprover
from aeolus_sandbox.streaming.approval import ApprovalRequest, Approve, Approver, Decision, Deny, Edit


def _request(*approvers: str, text: str = "the text", **fields: Any) -> ApprovalRequest:
    defaults: dict[str, Any] = {
        "run_key": "run",
        "sequence": 0,
        "session_id": "session",
        "tool_name": "tool",
        "approvers": approvers or ("role:admin",),
        "text": text,
        "preview": text,
        "timeout_s": 60.0,
    }
    return ApprovalRequest(**(defaults | fields))


class _Says:
    """Gives the same decision always; remembers what it was asked."""

    def __init__(self, decision: Decision | Exception | None) -> None:
        self.decision = decision
        self.asked: list[str] = []

    async def decide(self, request: ApprovalRequest) -> Decision:
        self.asked.append(request.text)
        if isinstance(self.decision, Exception):
            raise self.decision
        return self.decision  # type: ignore[return-value] # None: an approver that is wrong


class _Waits:
    """Never decides."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.cancelled = False

    async def decide(self, request: ApprovalRequest) -> Decision:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        raise AssertionError


YES = Approve(by="ann")
NO = Deny(by="bob", reason="too much")
SILENCE = Deny(by="console", reason="the input has ended", answered=False)


# A function.


async def test_a_callback_that_blocks_does_not_block_the_loop() -> None:
    threads = set[threading.Thread]()

    def decide(request: ApprovalRequest) -> bool:
        threads.add(threading.current_thread())
        return request.text == "the text"

    async with asyncio.timeout(10):
        assert await CallbackApprover(decide, by="rule").decide(_request()) == Approve(by="rule")
        assert await CallbackApprover(decide).decide(_request(text="x")) == Deny(by="callback")
    assert threading.current_thread() not in threads


async def test_an_async_callback_may_give_a_whole_decision() -> None:
    async def decide(request: ApprovalRequest) -> Decision:
        return Edit(by="ann", text=request.text.upper())

    def later(decision: Decision, request: ApprovalRequest) -> Awaitable[Decision]:
        return decide(request)

    for callback in (decide, functools.partial(later, YES)):
        async with asyncio.timeout(10):
            assert await CallbackApprover(callback).decide(_request()) == Edit(by="ann", text="THE TEXT")


@pytest.mark.parametrize("answer", [None, 1, "yes", "", {"kind": "approve"}], ids=repr)
async def test_a_callback_that_gives_anything_else_approves_nothing(answer: Any) -> None:
    async with asyncio.timeout(10):
        decision = await CallbackApprover(lambda _: answer).decide(_request())
    assert isinstance(decision, Deny)
    assert not decision.answered
    assert type(answer).__name__ in decision.reason


# A program.


async def test_a_program_gets_requests_in_order_and_answers_them_in_any() -> None:
    queue = QueueApprover()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        first = group.create_task(queue.decide(_request(sequence=0)))
        second = group.create_task(queue.decide(_request(sequence=1)))
        got = [await queue.next_request(), await queue.next_request()]
        assert [request.sequence for request in got] == [0, 1]
        assert queue.answer(got[1], NO)
        assert queue.answer(got[0], YES)
        assert (await first, await second) == (YES, NO)


async def test_a_program_can_iterate_over_the_requests() -> None:
    queue, seen = QueueApprover(), list[int]()

    async def serve() -> None:
        async for request in queue:
            seen.append(request.sequence)
            queue.answer(request, YES)
            if len(seen) == 2:
                return

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(serve())
        assert await queue.decide(_request(sequence=0)) == YES
        assert await queue.decide(_request(sequence=1)) == YES
    assert seen == [0, 1]


async def test_a_request_that_is_cancelled_is_not_given_out_and_takes_no_answer() -> None:
    queue = QueueApprover()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        late = group.create_task(queue.decide(_request(sequence=0)))
        seen = await queue.next_request()
        unseen = group.create_task(queue.decide(_request(sequence=1)))
        await asyncio.sleep(0)
        late.cancel()
        unseen.cancel()
        await asyncio.wait([late, unseen])
        assert not queue.answer(seen, YES)
        group.create_task(queue.decide(_request(sequence=2)))
        third = await queue.next_request()
        assert third.sequence == 2
        assert queue.answer(third, NO)
        assert not queue.answer(third, YES)  # the first answer counts


async def test_a_cancelled_next_request_loses_none() -> None:
    queue = QueueApprover()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = [group.create_task(queue.next_request()) for _ in range(2)]
        await asyncio.sleep(0)
        decided = group.create_task(queue.decide(_request()))
        waiting[0].cancel()
        queue.answer(await waiting[1], YES)
        assert await decided == YES


async def test_what_is_too_much_for_a_program_is_denied_at_once() -> None:
    queue = QueueApprover(max_waiting=1)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        first = group.create_task(queue.decide(_request(sequence=0)))
        request = await queue.next_request()
        refused = await queue.decide(_request(sequence=1))
        assert isinstance(refused, Deny)
        assert not refused.answered
        queue.answer(request, YES)
        assert await first == YES
        again = group.create_task(queue.decide(_request(sequence=1)))
        queue.answer(await queue.next_request(), YES)
        assert await again == YES


# Several together.


@pytest.mark.parametrize("combined", [AnyOf, AllOf])
async def test_only_those_who_may_decide_are_asked(
    combined: Callable[[dict[str, Approver]], Approver],
) -> None:
    admin, other, everybody = _Says(YES), _Says(NO), _Says(NO)
    approver = combined({"role:admin": admin, "role:other": other, "*": everybody})
    async with asyncio.timeout(10):
        assert await approver.decide(_request("role:admin")) == Approve(by="role:admin (ann)")
    assert (admin.asked, other.asked, everybody.asked) == (["the text"], [], [])


@pytest.mark.parametrize("combined", [AnyOf, AllOf])
async def test_nobody_who_may_decide_denies_and_names_the_roles(
    combined: Callable[[dict[str, Approver]], Approver],
) -> None:
    async with asyncio.timeout(10):
        decision = await combined({"role:admin": _Says(YES)}).decide(_request("role:ops", "role:law"))
    assert isinstance(decision, Deny)
    assert not decision.answered
    assert "'role:ops', 'role:law'" in decision.reason


@pytest.mark.parametrize("combined", [AnyOf, AllOf])
@pytest.mark.parametrize("wrong", [RuntimeError("the text is in here"), None], ids=repr)
async def test_a_member_that_fails_counts_as_no_answer_and_repeats_no_text(
    combined: Callable[[dict[str, Approver]], Approver],
    wrong: Exception | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with asyncio.timeout(10):
        decision = await combined({"role:admin": _Says(wrong)}).decide(_request("role:admin"))
    assert isinstance(decision, Deny)
    assert not decision.answered
    assert "the text" not in caplog.text + decision.reason


@pytest.mark.parametrize("passing", [YES, Edit(by="ann", text="other")], ids=["approved", "edited"])
async def test_any_of_takes_the_first_who_lets_it_pass_and_takes_the_question_back_elsewhere(
    passing: Decision,
) -> None:
    slow, refuses, lets = _Waits(), _Says(NO), _Says(passing)
    async with asyncio.timeout(10):
        decision = await AnyOf({"a": slow, "b": refuses, "c": lets}).decide(_request("a", "b", "c"))
    assert decision == passing.model_copy(update={"by": "c (ann)"})
    assert refuses.asked == ["the text"]
    assert slow.cancelled


async def test_any_of_is_denied_when_all_have_denied_and_tells_a_no_from_silence() -> None:
    async with asyncio.timeout(10):
        decision = await AnyOf({"a": _Says(SILENCE), "b": _Says(NO)}).decide(_request("a", "b"))
        silent = await AnyOf({"a": _Says(SILENCE), "b": _Says(SILENCE)}).decide(_request("a", "b"))
    assert decision == Deny(by="b (bob)", reason="too much")
    assert isinstance(silent, Deny)
    assert not silent.answered
    assert "a (console)" in silent.by
    assert "b (console)" in silent.by


@pytest.mark.parametrize("combined", [AnyOf, AllOf])
async def test_who_is_asked_is_cancelled_with_the_question(
    combined: Callable[[dict[str, Approver]], Approver],
) -> None:
    member = _Waits()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        asking = group.create_task(combined({"a": member}).decide(_request("a")))
        await member.asked.wait()
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
    assert member.cancelled


async def test_all_of_needs_every_one_in_the_order_of_the_request() -> None:
    order = list[str]()

    def member(name: str) -> Approver:
        async def decide(request: ApprovalRequest) -> bool:
            order.append(name)
            return True

        return CallbackApprover(decide, by=name)

    approver = AllOf({name: member(name) for name in "abc"})
    async with asyncio.timeout(10):
        decision = await approver.decide(_request("c", "a", "c", "b"))
    assert decision == Approve(by="c (c), a (a), b (b)")
    assert order == ["c", "a", "b"]


async def test_the_first_denial_denies_for_all_and_nobody_else_is_asked() -> None:
    later = _Says(YES)
    async with asyncio.timeout(10):
        decision = await AllOf({"a": _Says(NO), "b": later}).decide(_request("a", "b"))
    assert decision == Deny(by="a (bob)", reason="too much")
    assert later.asked == []


async def test_whoever_must_agree_and_is_not_there_has_not_agreed() -> None:
    present = _Says(YES)
    async with asyncio.timeout(10):
        decision = await AllOf({"a": present}).decide(_request("a", "b"))
    assert isinstance(decision, Deny)
    assert "'b'" in decision.reason
    assert "'a'" not in decision.reason


async def test_what_one_edits_all_others_must_approve_as_edited() -> None:
    asked = list[tuple[str, str, str]]()

    async def first(request: ApprovalRequest) -> bool:
        asked.append(("a", request.text, request.preview))
        return True

    async def edits(request: ApprovalRequest) -> Decision:
        return Edit(by="ed", text="***")

    async def last(request: ApprovalRequest) -> bool:
        asked.append(("c", request.text, request.preview))
        return True

    approver = AllOf(
        {"a": CallbackApprover(first, "a"), "b": CallbackApprover(edits), "c": CallbackApprover(last, "c")}
    )
    async with asyncio.timeout(10):
        decision = await approver.decide(_request("a", "b", "c"))
    assert decision == Edit(by="a (a), b (ed), c (c)", text="***")
    assert asked == [("a", "the text", "the text"), ("a", "***", "***"), ("c", "***", "***")]


async def test_an_edit_that_another_denies_does_not_pass() -> None:
    async def only_the_original(request: ApprovalRequest) -> bool:
        return request.text == "the text"

    members: dict[str, Approver] = {
        "a": CallbackApprover(only_the_original, "a"),
        "b": _Says(Edit(by="ed", text="***")),
    }
    async with asyncio.timeout(10):
        assert await AllOf(members).decide(_request("a", "b")) == Deny(by="a (a)")


async def test_an_edit_of_what_says_more_than_its_text_never_passes_the_original() -> None:
    request = _request("a", beyond_text="the digest of an image")
    async with asyncio.timeout(10):
        decision = await AllOf({"a": _Says(Edit(by="ed", text="the text"))}).decide(request)
    assert decision == Edit(by="a (ed)", text="the text")


async def test_those_who_edit_each_other_for_ever_are_denied() -> None:
    members: dict[str, Approver] = {
        "a": _Says(Edit(by="one", text="1")),
        "b": _Says(Edit(by="two", text="2")),
    }
    async with asyncio.timeout(10):
        decision = await AllOf(members).decide(_request("a", "b"))
    assert isinstance(decision, Deny)
    assert not decision.answered
    assert "no agreement" in decision.reason


verdicts = st.sampled_from([YES, NO, SILENCE, Edit(by="ed", text="***")])


@given(decisions=st.lists(verdicts, min_size=1, max_size=5))
async def test_any_of_passes_if_one_does_and_all_of_only_if_all_do(decisions: list[Decision]) -> None:
    roles = [f"role:{number}" for number in range(len(decisions))]
    members: dict[str, Approver] = {
        role: _Says(decision) for role, decision in zip(roles, decisions, strict=True)
    }
    async with asyncio.timeout(10):
        any_of = await AnyOf(members).decide(_request(*roles))
        all_of = await AllOf(members).decide(_request(*roles))
    assert isinstance(any_of, Deny) == all(isinstance(decision, Deny) for decision in decisions)
    assert isinstance(all_of, Deny) == any(isinstance(decision, Deny) for decision in decisions)
    if isinstance(any_of, Deny):
        assert any_of.answered == (NO in decisions)
