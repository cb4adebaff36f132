"""The spool gives back exactly what the pump put in, in order, for as long as it is held."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.streaming import byte_log
from aeolus_sandbox.streaming.chunks import JsonCodec, OutputChunk
from aeolus_sandbox.streaming.spool import Spool
from aeolus_sandbox.tools.terminal.models import TerminalChunk, TerminalCodec

CAPACITY = 60


class _Line(OutputChunk):
    text: str


@pytest.fixture(autouse=True, scope="module")
def _small_batches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_log, "_SPILL_BYTES", 7)
        yield


append = st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(min_size=1, max_size=20))
steps = st.lists(append | st.just("read") | st.just("evict"), max_size=80)


@given(steps=steps, memory=st.integers(0, 30))
def test_any_use_gives_every_byte_that_was_not_let_go_once_and_in_order(
    steps: list[tuple[str, bytes] | str], memory: int
) -> None:
    async def use() -> None:
        spool: Spool[TerminalChunk] = Spool(TerminalCodec(), capacity_bytes=CAPACITY, memory_bytes=memory)
        written: list[tuple[str, int]] = []
        index = position = let_go = 0

        def evict() -> None:
            nonlocal let_go
            oldest = spool.record(spool.first_index)
            assert oldest is not None
            let_go = oldest.end
            spool.evict_oldest()

        for step in [*steps, *["read"] * len(steps)]:
            if isinstance(step, tuple):
                while not spool.fits(len(step[1])):
                    evict()
                spool.append(
                    *TerminalCodec().encode(
                        TerminalChunk.model_validate({"stream": step[0], "data": step[1]})
                    )
                )
                await spool.settle()
                written += [(step[0], byte) for byte in step[1]]
            elif step == "evict" and spool.first_index < spool.next_index:
                evict()
            elif step == "read" and (record := spool.record(max(index, spool.first_index))) is not None:
                chunk = await spool.load(record)
                assert chunk is not None
                assert chunk.span.start == max(position, let_go)
                assert [(chunk.stream, byte) for byte in chunk.data] == written[slice(*chunk.span)]
                assert await spool.read_range(*chunk.span) == chunk.data
                index, position = record.index + 1, chunk.span.end
        assert max(position, let_go) == len(written) == spool.total_bytes
        spool.close()

    asyncio.run(use())


async def test_unread_neighbours_of_one_stream_are_joined_and_read_ones_are_not() -> None:
    spool: Spool[TerminalChunk] = Spool(TerminalCodec(), capacity_bytes=1_000_000)
    for _ in range(10_000):
        spool.append(0, b"x")
    assert spool.next_index == 1
    record = spool.record(0)
    assert record is not None
    await spool.load(record)
    spool.append(0, b"y")
    spool.append(1, b"z")
    assert spool.next_index == 3
    assert (record.start, record.end, record.characters) == (0, 10_000, 10_000)


async def test_chunks_that_cannot_be_joined_are_counted_for_what_they_cost() -> None:
    """A million empty chunks would otherwise be free for the tool, and not for the host."""
    spool: Spool[_Line] = Spool(JsonCodec(_Line), capacity_bytes=10_000)
    count = 0
    while spool.fits(12):
        spool.append(*JsonCodec(_Line).encode(_Line(text="")))
        count += 1
    assert count < 10_000 / 64
    spool.evict_oldest()
    assert spool.fits(12)


async def test_what_was_let_go_while_it_was_read_is_no_chunk() -> None:
    spool: Spool[TerminalChunk] = Spool(TerminalCodec(), capacity_bytes=1000, memory_bytes=0)
    for number in range(50):
        spool.append(number % 2, b"0123456789")
        await spool.settle()
    record = spool.record(0)
    assert record is not None
    async with asyncio.TaskGroup() as group:
        loading = group.create_task(spool.load(record))
        await asyncio.sleep(0)
        for _ in range(10):
            spool.evict_oldest()
    assert loading.result() is None
    assert await spool.read_range(0, 100) == b""
    assert await spool.read_range(95, 110) == b"0123456789"
    spool.close()


async def test_the_first_error_is_kept_and_readers_are_woken() -> None:
    spool: Spool[TerminalChunk] = Spool(TerminalCodec(), capacity_bytes=1000)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(spool.wait_changed())
        await asyncio.sleep(0)
        spool.end(ValueError("first"))
    spool.end(ValueError("second"))
    assert str(spool.error) == "first"
    assert spool.ended
