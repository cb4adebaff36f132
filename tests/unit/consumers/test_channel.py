"""The channel: bounded, in order, and never silent about what is missing."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.consumers import ChannelConsumer, EventsDropped, deliver
from aeolus_sandbox.errors import ConfigurationError, ConsumerError
from aeolus_sandbox.events import Content, StreamEvent
from tests.unit.consumers.runs_of_events import Run, any_run, deliver_all

RUN = Run().whole(*[(Content, {"content": str(number)}) for number in range(8)])
LIMIT_S = 30.0


@given(any_run(), st.integers(1, 4))
async def test_waiting_run_loses_nothing_however_small_the_channel(
    events: list[StreamEvent], size: int
) -> None:
    channel = ChannelConsumer(max_events=size)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        group.create_task(deliver_all(channel, events))
        received = [event async for event in channel]
    assert received == events
    assert channel.dropped == 0


async def test_run_waits_for_a_slow_receiver() -> None:
    channel = ChannelConsumer(max_events=2)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        sending = group.create_task(deliver_all(channel, RUN))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not sending.done()
        assert [event async for event in channel] == RUN


@given(st.integers(1, 12))
async def test_dropped_events_are_counted_and_announced_in_their_place(size: int) -> None:
    channel = ChannelConsumer(max_events=size, when_full="drop_oldest")
    await deliver_all(channel, RUN)
    received = [event async for event in channel]
    missing = max(0, len(RUN) - size)
    assert received == [*([EventsDropped(missing)] if missing else []), *RUN[missing:]]
    assert channel.dropped == missing


async def test_full_channel_can_be_an_error() -> None:
    channel = ChannelConsumer(max_events=2, when_full="fail")
    with pytest.raises(ConsumerError, match="2 events wait"):
        await deliver_all(channel, RUN)
    assert await anext(channel) == RUN[0]


async def test_one_channel_serves_one_run_after_the_other() -> None:
    channel = ChannelConsumer()
    for _ in range(2):
        await deliver_all(channel, RUN)
    assert [event async for event in channel] == RUN
    assert [event async for event in channel] == RUN


async def test_closed_channel_gives_what_waits_and_fails_the_run() -> None:
    channel = ChannelConsumer(max_events=1)
    failures: list[str] = []

    async def send() -> None:
        try:
            await deliver_all(channel, RUN)
        except ConsumerError as error:
            failures.append(str(error))

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        sending = group.create_task(send())
        await asyncio.sleep(0)
        channel.close()
        await sending
    assert failures == ["the channel is closed: nobody reads the events any more"]
    with pytest.raises(ConsumerError):
        await deliver(channel, RUN[2])
    assert [event async for event in channel] == [RUN[0]]


async def test_cancelled_receiver_loses_nothing() -> None:
    channel = ChannelConsumer()
    received: list[StreamEvent | EventsDropped] = []

    async def receive() -> None:
        received.append(await anext(channel))

    async with asyncio.timeout(LIMIT_S):
        for number, event in enumerate(RUN):
            async with asyncio.TaskGroup() as group:
                receiving = group.create_task(receive())
                for _ in range(number % 3):
                    await asyncio.sleep(0)
                await deliver(channel, event)  # wakes the receiver
                receiving.cancel()
        received += [event async for event in channel]
    assert received == RUN


def test_channel_must_hold_something() -> None:
    with pytest.raises(ConfigurationError):
        ChannelConsumer(max_events=0)
