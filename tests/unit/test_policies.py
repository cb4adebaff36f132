"""What every policy promises: nothing is lost unseen, whatever the pace of the reader and whenever it is cancelled."""

import asyncio
import functools
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.streaming import byte_log
from aeolus_sandbox.streaming.chunks import JsonCodec, OutputChunk
from aeolus_sandbox.streaming.policies import Buffer, Policy, PolicyView, Window
from aeolus_sandbox.streaming.spool import Spool
from aeolus_sandbox.tools.terminal.models import TerminalChunk, TerminalCodec
from tests.unit.policy_contexts import policy_context

POLICIES = [Buffer(), Window(max_chunks=100_000)]


class _Number(OutputChunk):
    number: int


CODEC = JsonCodec(_Number)


@pytest.fixture(autouse=True, scope="module")
def _small_batches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_log, "_SPILL_BYTES", 64)
        yield


async def _put(spool: Spool[Any], chunk: OutputChunk, codec: Any = CODEC) -> None:
    tag, payload = codec.encode(chunk)
    while not spool.fits(len(payload)):
        spool.evict_oldest()
    spool.append(tag, payload)
    await spool.settle()


async def _rest(view: PolicyView[Any]) -> list[Any]:
    chunks = []
    while (chunk := await view.next_chunk()) is not None:
        chunks.append(chunk)
    assert await view.next_chunk() is None
    return chunks


def _spool(*, capacity_bytes: int = 1_000_000, memory_bytes: int = 1_000_000) -> Spool[_Number]:
    return Spool(CODEC, capacity_bytes=capacity_bytes, memory_bytes=memory_bytes)


outputs = st.lists(
    st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(min_size=1, max_size=8)), max_size=30
)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@given(output=outputs, paces=st.lists(st.integers(0, 2), min_size=1, max_size=10))
async def test_every_byte_is_read_once_and_in_order_at_any_pace(
    policy: Policy, output: list[tuple[str, bytes]], paces: list[int]
) -> None:
    spool: Spool[TerminalChunk] = Spool(TerminalCodec(), capacity_bytes=10_000, memory_bytes=16)
    view = policy.view(spool, policy_context())

    async def pump() -> None:
        for (stream, data), pace in zip(output, itertools.cycle(paces), strict=False):
            chunk = TerminalChunk.model_validate({"stream": stream, "data": data})
            await _put(spool, chunk, TerminalCodec())
            for _ in range(pace):
                await asyncio.sleep(0)
        spool.end()

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        reading = group.create_task(_rest(view))
        group.create_task(pump())
    chunks = reading.result()
    assert b"".join(chunk.data for chunk in chunks) == b"".join(data for _, data in output)
    assert all(chunk.dropped_bytes == 0 for chunk in chunks)
    for chunk in chunks:  # what was read is held only while memory has room for it
        assert chunk.data.endswith(await spool.read_range(*chunk.span))
    spool.close()


async def test_what_the_reader_has_not_seen_is_held_and_what_it_has_seen_makes_room() -> None:
    spool: Spool[TerminalChunk] = Spool(TerminalCodec(), capacity_bytes=100_000, memory_bytes=1000)
    view = Window(max_chunks=2).view(spool, policy_context())
    put = functools.partial(_put, spool, codec=TerminalCodec())
    await put(TerminalChunk(stream="stdout", data=b"seen" * 200))
    seen = await view.next_chunk()
    for number in range(20):  # the streams alternate, so that each is a chunk of its own
        await put(TerminalChunk(stream="stderr" if number % 2 else "stdout", data=b"%03d" % number * 200))
    spool.end()
    assert [chunk.data[:3] for chunk in await _rest(view)] == [b"018", b"019"]
    assert seen is not None
    assert await spool.read_range(*seen.span) == b""
    dropped = await spool.read_range(seen.span.end, seen.span.end + 18 * 600)
    assert dropped == b"".join(b"%03d" % number * 200 for number in range(18))
    spool.close()


@pytest.mark.parametrize("memory_bytes", [0, 1_000_000], ids=["disk", "memory"])
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
async def test_cancelled_next_chunk_loses_nothing(policy: Policy, memory_bytes: int) -> None:
    chance, spool, found, cancelled = random.Random(2), _spool(memory_bytes=memory_bytes), list[int](), 0
    view = policy.view(spool, policy_context())

    async def pump() -> None:
        for number in range(400):
            await _put(spool, _Number(number=number))
            for _ in range(
                chance.randrange(12)
            ):  # turns of the loop, not times: a busy machine changes nothing
                await asyncio.sleep(0)
        spool.end()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(pump())
        while True:
            reading = group.create_task(view.next_chunk())
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            if reading.cancelled():
                cancelled += 1
            elif (chunk := reading.result()) is None:
                break
            else:
                found.append(chunk.number)
    assert found == list(range(400))
    assert cancelled > 100
    spool.close()


async def test_a_timeout_around_next_chunk_loses_nothing() -> None:
    spool, found = _spool(), list[int]()
    view = Window().view(spool, policy_context())

    async def pump() -> None:
        for number in range(200):
            await _put(spool, _Number(number=number))
            await asyncio.sleep(0.0005)
        spool.end()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(pump())
        while True:
            try:
                chunk = await asyncio.wait_for(view.next_chunk(), 0.0003)
            except TimeoutError:
                continue
            if chunk is None:
                break
            found.append(chunk.number)
    assert found == list(range(200))


async def test_window_keeps_the_newest_and_counts_what_it_drops() -> None:
    spool = _spool()
    view = Window(max_chunks=3).view(spool, policy_context())
    for number in range(10):
        await _put(spool, _Number(number=number))
    size = spool.total_bytes // 10
    window = view.context_window()
    assert (window.chunks_held, window.chunks_dropped, window.bytes_dropped) == (3, 7, 7 * size)
    assert (window.characters_held, window.limit_chunks) == (3 * size, 3)
    assert window.estimated_tokens_held == -(-3 * size // 4)
    spool.end()
    chunks = await _rest(view)
    assert [chunk.number for chunk in chunks] == [7, 8, 9]
    assert [chunk.dropped_bytes for chunk in chunks] == [7 * size, 0, 0]
    assert view.context_window().bytes_dropped == 7 * size
    assert (
        await spool.read_range(0, size) == CODEC.encode(_Number(number=0))[1]
    )  # dropped from view, but held


@given(
    moves=st.lists(st.integers(0, 8), max_size=40), limit=st.integers(1, 5), capacity=st.integers(300, 2000)
)
async def test_a_slow_reader_knows_of_every_byte_that_it_did_not_see(
    moves: list[int], limit: int, capacity: int
) -> None:
    spool = _spool(capacity_bytes=capacity, memory_bytes=100)
    view = Window(max_chunks=limit).view(spool, policy_context())
    written = 0
    last = seen_bytes = 0
    for move in moves:
        for _ in range(move):
            await _put(spool, _Number(number=written))
            written += 1
        if move % 2 and view.context_window().chunks_held:
            chunk = await view.next_chunk()
            assert chunk is not None
            assert chunk.span.start == last + chunk.dropped_bytes
            assert chunk.number >= written - limit
            last, seen_bytes = chunk.span.end, seen_bytes + chunk.span.end - chunk.span.start
    spool.end()
    for chunk in await _rest(view):
        assert chunk.span.start == last + chunk.dropped_bytes
        last, seen_bytes = chunk.span.end, seen_bytes + chunk.span.end - chunk.span.start
    assert last == spool.total_bytes
    assert seen_bytes + view.context_window().bytes_dropped == spool.total_bytes
    assert view.context_window().chunks_held == 0
    spool.close()


async def test_buffer_gives_nothing_before_the_end_and_then_one_chunk() -> None:
    spool: Spool[TerminalChunk] = Spool(TerminalCodec(), capacity_bytes=10_000)
    view = Buffer().view(spool, policy_context())
    for stream in ("stdout", "stderr", "stdout"):
        await _put(
            spool, TerminalChunk.model_validate({"stream": stream, "data": stream.encode()}), TerminalCodec()
        )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await view.next_chunk()
    assert view.context_window().chunks_held == 3
    spool.end()
    (chunk,) = await _rest(view)
    assert (chunk.stream, chunk.data, chunk.span) == ("combined", b"stdoutstderrstdout", (0, 18))


async def test_buffer_gives_chunks_that_do_not_combine_one_by_one() -> None:
    spool = _spool()
    for number in range(3):
        await _put(spool, _Number(number=number))
    spool.end()
    assert [chunk.number for chunk in await _rest(Buffer().view(spool, policy_context()))] == [0, 1, 2]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
async def test_no_output_is_no_chunk(policy: Policy) -> None:
    spool = _spool()
    spool.end()
    assert await _rest(policy.view(spool, policy_context())) == []


def test_only_window_lets_the_oldest_go() -> None:
    assert Window.lets_oldest_go
    assert not Buffer.lets_oldest_go
