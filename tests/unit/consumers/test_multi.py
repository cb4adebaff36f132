"""Several consumers: their order, and what an error of one means for the others."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.consumers import CallbackConsumer, MultiConsumer, deliver
from aeolus_sandbox.events import Content, StreamEvent
from tests.unit.consumers.runs_of_events import Run, any_run, deliver_all

RUN = Run().whole((Content, {"content": "one"}), (Content, {"content": "two"}))


def failing(event: StreamEvent) -> None:
    raise ValueError(f"no {event.type}")


@given(any_run(), st.lists(st.booleans(), min_size=1, max_size=5))
async def test_every_consumer_gets_every_event_in_the_order_of_adding(
    events: list[StreamEvent], kinds: list[bool]
) -> None:
    seen: list[tuple[int, StreamEvent]] = []
    multi = MultiConsumer()
    for number, is_async in enumerate(kinds):

        def note(event: StreamEvent, number: int = number) -> None:
            seen.append((number, event))

        async def note_async(event: StreamEvent, number: int = number) -> None:
            seen.append((number, event))

        multi.add(CallbackConsumer(note_async if is_async else note))
    await deliver_all(multi, events)
    assert seen == [(number, event) for event in events for number in range(len(kinds))]


async def test_error_stops_propagation_and_is_raised() -> None:
    before: list[StreamEvent] = []
    after: list[StreamEvent] = []
    multi = (
        MultiConsumer()
        .add(CallbackConsumer(before.append))
        .add(CallbackConsumer(failing))
        .add(CallbackConsumer(after.append))
    )
    with pytest.raises(ValueError, match="no session_started"):
        await deliver(multi, RUN[0])
    assert (before, after, multi.failures) == ([RUN[0]], [], 1)


async def test_ignored_errors_are_counted_and_logged_once_per_consumer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[StreamEvent] = []
    multi = MultiConsumer()
    for _ in range(2):
        multi.add(CallbackConsumer(failing), on_error="ignore")
    multi.add(CallbackConsumer(seen.append))
    with caplog.at_level(logging.WARNING):
        await deliver_all(multi, RUN)
    assert seen == RUN
    assert [member.failures for member in multi.members] == [len(RUN), len(RUN), 0]
    assert multi.failures == 2 * len(RUN)
    assert len(caplog.records) == 2
    assert str(multi.members[0].last_error) == "no done"


async def test_closing_reaches_all_although_one_fails() -> None:
    closed: list[str] = []

    class Closing:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_event(self, event: StreamEvent) -> None: ...

        async def aclose(self) -> None:
            closed.append(self.name)
            if self.name == "bad":
                raise ValueError(self.name)

    multi = MultiConsumer().add(Closing("bad")).add(CallbackConsumer(print)).add(Closing("good"))
    with pytest.raises(ValueError, match="bad"):
        await multi.aclose()
    assert closed == ["bad", "good"]


async def test_an_async_callback_is_waited_for() -> None:
    done: list[str] = []

    async def slow(event: StreamEvent) -> str:
        done.append(event.type)
        return "whatever"

    await deliver_all(CallbackConsumer(slow), RUN)
    assert done == [event.type for event in RUN]
