"""Tiny writes, however many, cost the host little more than their bytes."""

import asyncio
import sys
from collections.abc import Sequence

from aeolus_sandbox import (
    ExitStatus,
    Limits,
    Stop,
    StreamingToolHandle,
    StreamingToolSession,
    TerminalChunk,
    UnixSignal,
    Window,
)
from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.pieces import Piece
from aeolus_sandbox.streaming.byte_log import ByteLog
from aeolus_sandbox.streaming.chunks import JsonCodec, OutputChunk
from aeolus_sandbox.streaming.clipping import ClippedText
from aeolus_sandbox.streaming.spool import Spool
from aeolus_sandbox.tools.terminal.models import TerminalCodec
from aeolus_sandbox.tools.terminal.tool import OUTPUT_CHARACTERS, _Run
from tests.unit.policy_contexts import policy_context, session_services

WRITES = 20_000


class _Line(OutputChunk):
    text: str


class _Program:
    """A process that has written some pieces, and ends."""

    tty = False

    def __init__(self, *batches: list[Piece]) -> None:
        self._batches = list(batches)

    async def read(self) -> Sequence[Piece]:
        return self._batches.pop(0) if self._batches else ()

    async def write(self, data: bytes) -> None: ...

    def write_eof(self) -> None: ...

    async def signal(self, signal: UnixSignal) -> None: ...

    async def resize(self, *, cols: int, rows: int) -> None: ...

    async def stop(self, stop: Stop) -> None: ...

    async def wait(self) -> ExitStatus:
        return ExitStatus(reason="exited", code=0)


async def test_reader_that_keeps_up_with_tiny_writes_leaves_few_records() -> None:
    spool: Spool[TerminalChunk] = Spool(TerminalCodec(), capacity_bytes=1_000_000)
    view = Window().view(spool, policy_context())
    for number in range(WRITES):
        spool.append(number % 2, b"xy")
        chunk = await view.next_chunk()
        assert chunk is not None
        assert (chunk.data, chunk.span, chunk.dropped_bytes) == (b"xy", (2 * number, 2 * number + 2), 0)
    assert spool.next_index == WRITES
    held = spool.next_index - spool.first_index - sum(spool.record(i) is None for i in range(WRITES))
    assert held < 10
    assert await spool.read_range(0, 2 * WRITES) == b"xy" * WRITES


async def test_chunks_that_were_read_are_not_counted_one_by_one_any_more() -> None:
    spool: Spool[_Line] = Spool(JsonCodec(_Line), capacity_bytes=100_000)
    view = Window().view(spool, policy_context())
    for number in range(1000):
        spool.append(*JsonCodec(_Line).encode(_Line(text=f"{number}")))
        chunk = await view.next_chunk()
        assert chunk is not None
        assert chunk.text == f"{number}"
    assert spool.first_index == 0  # nothing had to go, although a thousand records would be counted for 64 kB
    assert spool.fits(70_000)


async def test_records_that_were_read_go_in_small_parts_when_room_is_needed() -> None:
    spool: Spool[TerminalChunk] = Spool(TerminalCodec(), capacity_bytes=6400)
    view = Window().view(spool, policy_context())
    for number in range(2000):
        while not spool.fits(10):
            spool.evict_oldest()
        spool.append(0, b"%09d\n" % number)
        assert (await view.next_chunk()) is not None
    held = await spool.read_range(0, 20_000)
    assert held.endswith(b"000001999\n")
    assert 6400 - 200 <= len(held) <= 6400


async def test_chunk_that_was_let_go_after_some_were_joined_is_skipped_and_told() -> None:
    spool: Spool[TerminalChunk] = Spool(TerminalCodec(), capacity_bytes=10_000)
    view = Window().view(spool, policy_context())
    for number in range(6):
        spool.append(number % 2, b"%d" % number)
    for number in range(3):
        chunk = await view.next_chunk()
        assert chunk is not None
        assert chunk.data == b"%d" % number
    spool.evict_oldest()  # the three that were read
    spool.evict_oldest()  # one that was not
    chunk = await view.next_chunk()
    assert chunk is not None
    assert (chunk.data, chunk.dropped_bytes) == (b"4", 1)
    assert view.context_window().chunks_dropped == 1


def test_log_of_tiny_pieces_takes_little_more_memory_than_its_bytes() -> None:
    log = ByteLog(capacity_bytes=10_000_000)
    for number in range(WRITES):
        log.append(bytes([number % 256, number // 256]))
    pieces = [*log._pieces, *log._starts]
    assert sum(map(sys.getsizeof, pieces)) < 2 * WRITES * 1.2
    assert log.in_memory(4098, 4102) == bytes([2049 % 256, 8, 2050 % 256, 8])


async def test_tiny_pieces_that_arrive_together_become_few_chunks_of_one_stream_each() -> None:
    pieces = [Piece("stdout", b"a")] * 1000 + [Piece("stderr", b"b")] * 10 + [Piece("stdout", b"c" * 600)] * 3
    run = _Run(
        _Program(pieces, [Piece("stdout", b"d")]),
        [],
        output=ClippedText(OUTPUT_CHARACTERS),
        max_chunk_bytes=1024,
    )
    chunks = [(chunk.stream, chunk.data) async for chunk in run.chunks()]
    assert chunks == [
        ("stdout", b"a" * 1000),
        ("stderr", b"b" * 10),
        ("stdout", b"c" * 600),
        ("stdout", b"c" * 600),
        ("stdout", b"c" * 600),
        ("stdout", b"d"),
    ]
    result = await run.result()
    assert (result.stdout_bytes, result.stderr_bytes) == (2801, 10)


async def test_flood_that_is_there_already_lets_others_run_in_between() -> None:
    """One piece for each stream in turn cannot be joined; the loop must not be kept busy until all are taken."""
    pieces = [Piece("stdout", b"a"), Piece("stderr", b"b")] * 20_000
    run = _Run(_Program(pieces), [], output=ClippedText(OUTPUT_CHARACTERS), max_chunk_bytes=1024)
    tasks = BackgroundTasks()

    async def release() -> None: ...

    session = StreamingToolSession(
        StreamingToolHandle(chunks=run.chunks(), finalize=run.result()),
        session_id="flood",
        tool_name="terminal",
        policy=Window(),
        codec=TerminalCodec(),
        limits=Limits(),
        services=session_services(tasks),
        release=release,
    )
    turns = 0
    async with asyncio.timeout(60), session:
        while session.status is None:
            await asyncio.sleep(0)
            turns += 1
    assert turns > 50
    await tasks.aclose(timeout_s=5)
