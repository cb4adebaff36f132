"""The channel of a bidirectional tool keeps order, is bounded, and loses nothing."""

import asyncio
import random

import pytest

from aeolus_sandbox.errors import SessionClosed
from aeolus_sandbox.streaming.stdin import StdinChannel, StdinEvent, Text


async def _received(channel: StdinChannel) -> list[StdinEvent]:
    return [event async for event in channel]


async def test_events_arrive_in_order_until_the_channel_is_closed() -> None:
    channel, sent = StdinChannel(max_events=2), [Text(str(number)) for number in range(50)]
    async with asyncio.TaskGroup() as group:
        receiving = group.create_task(_received(channel))
        for event in sent:
            await channel.send(event)
        await channel.aclose()
    assert receiving.result() == sent


async def test_a_sender_waits_while_the_tool_does_not_receive() -> None:
    channel = StdinChannel(max_events=1)
    await channel.send(Text("a"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await channel.send(Text("b"))
    await channel.aclose()
    assert await _received(channel) == [Text("a")]


async def test_a_closed_channel_takes_nothing_and_wakes_who_waits() -> None:
    channel = StdinChannel(max_events=1)
    await channel.send(Text("a"))

    async def send() -> None:
        with pytest.raises(SessionClosed):
            await channel.send(Text("b"))

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(send())
        await asyncio.sleep(0)
        await channel.aclose()
    with pytest.raises(SessionClosed):
        await channel.send(Text("c"))


async def test_a_cancelled_sender_has_sent_all_or_nothing() -> None:
    chance, channel, sent = random.Random(1), StdinChannel(max_events=1), list[Text]()

    async def send() -> None:
        for number in range(300):
            event = Text(str(number))
            task = group.create_task(channel.send(event))
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                sent.append(event)
        await channel.aclose()

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        receiving = group.create_task(_received(channel))
        group.create_task(send())
    assert receiving.result() == sent
    assert 0 < len(sent) < 300
