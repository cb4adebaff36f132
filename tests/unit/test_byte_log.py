"""What was appended can be read back by its offsets, from memory, from the file, and across both."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.streaming import byte_log
from aeolus_sandbox.streaming.byte_log import ByteLog

SPILL_BYTES = 7


@pytest.fixture(autouse=True, scope="module")
def _small_batches() -> Iterator[None]:
    """Move few bytes at once, so that short examples wrap around the ring of the file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_log, "_SPILL_BYTES", SPILL_BYTES)
        yield


append = st.tuples(st.just("append"), st.binary(max_size=40))
forget = st.tuples(st.just("forget"), st.integers(0, 60))
read = st.tuples(st.just("read"), st.tuples(st.integers(-60, 60), st.integers(0, 60)))
steps = st.lists(append | forget | read, max_size=60)


@given(steps=steps, capacity=st.integers(40, 90), memory=st.integers(0, 30))
def test_any_use_equals_a_plain_string_of_bytes(
    steps: list[tuple[str, object]], capacity: int, memory: int
) -> None:
    async def use() -> None:
        log, everything, first = ByteLog(capacity_bytes=capacity, memory_bytes=memory), b"", 0
        for kind, value in steps:
            if isinstance(value, bytes):
                first = max(first, len(everything) + len(value) - capacity)
                log.forget_before(first)
                assert log.append(value) == len(everything)
                everything += value
                while log.must_spill:
                    await log.spill()
            elif isinstance(value, int):
                first = max(first, min(first + value, len(everything)))
                log.forget_before(first)
            elif isinstance(value, tuple):
                start = max(0, len(everything) + value[0])
                end = start + value[1]
                expected = everything[max(start, first) : end] if end > first else b""
                assert await log.read(start, end) == expected, kind
            assert (log.start, log.end, log.held_bytes) == (first, len(everything), len(everything) - first)
        assert await log.read(0, len(everything)) == everything[first:]
        log.close()
        assert log.held_bytes == 0

    asyncio.run(use())


@given(steps=st.lists(st.binary(min_size=1, max_size=30), max_size=60), seed=st.integers(0, 3))
def test_reads_during_spills_and_evictions_give_what_is_still_held(steps: list[bytes], seed: int) -> None:
    """A read may return less at its beginning, when that was let go meanwhile, but never a wrong byte."""

    async def use() -> None:
        log, everything, done = ByteLog(capacity_bytes=64, memory_bytes=seed * 8), bytearray(), False

        async def write() -> None:
            nonlocal done
            for data in steps:
                log.forget_before(len(everything) + len(data) - 64)
                log.append(data)
                everything.extend(data)
                while log.must_spill:
                    await log.spill()
                await asyncio.sleep(0)
            done = True

        async def check() -> None:
            while not done:
                end = log.end
                found = await log.read(log.start, end)
                assert bytes(everything[:end]).endswith(found)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            group.create_task(check())
        log.close()

    asyncio.run(use())


async def test_memory_stays_small_and_the_rest_goes_to_a_file() -> None:
    log = ByteLog(capacity_bytes=10_000, memory_bytes=100)
    for number in range(1000):
        log.append(b"%09d\n" % number)
        while log.must_spill:
            await log.spill()
    assert log.in_memory(0, 10) is None
    assert log.in_memory(9_990, 10_000) == b"000000999\n"
    assert await log.read(5_000, 5_020) == b"000000500\n000000501\n"
    log.close()


async def test_a_full_disk_is_said_and_loses_nothing() -> None:
    log = ByteLog(capacity_bytes=1000, memory_bytes=0)
    log.append(b"0123456789")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", _no_space)
        with pytest.raises(OSError, match="No space left"):
            await log.spill()
    assert await log.read(0, 10) == b"0123456789"
    await log.spill()
    assert await log.read(0, 10) == b"0123456789"
    log.close()


def _no_space(*_: object) -> int:
    raise OSError(28, "No space left on device")


async def test_a_range_that_was_let_go_is_empty() -> None:
    log = ByteLog(capacity_bytes=100, memory_bytes=0)
    log.append(b"0123456789")
    await log.spill()
    log.forget_before(8)
    assert await log.read(0, 5) == b""
    assert await log.read(0, 10) == b"89"
    log.close()
