"""A batch in the spool is read as its chunks would be one by one: none lost unseen, each with its place."""

import asyncio
import copy
import pickle
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import SessionBroken
from aeolus_sandbox.streaming import byte_log
from aeolus_sandbox.streaming.chunks import ChunkBatch, JsonCodec, Span
from aeolus_sandbox.streaming.filters import CleanControls, Redact
from aeolus_sandbox.streaming.policies import (
    Buffer,
    ContextWindow,
    Manual,
    Policy,
    PolicyView,
    Summarise,
    Window,
)
from aeolus_sandbox.streaming.spool import Spool
from tests.unit.numbered import (
    CODEC,
    Item,
    Numbered,
    NumberedCodec,
    NumberedTool,
    batch_of,
    encoded,
    grouped,
    spans_of,
)
from tests.unit.policy_contexts import policy_context, session_services

PATIENCE_S = 30


@pytest.fixture(autouse=True, scope="module")
def _small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_log, "_SPILL_BYTES", 64)
        yield


@pytest.fixture
async def tasks() -> AsyncIterator[BackgroundTasks]:
    opened = BackgroundTasks()
    yield opened
    await opened.aclose(timeout_s=PATIENCE_S)


class _NoModel:
    async def complete(self, *, system: str, prompt: str, max_tokens: int) -> str:
        raise AssertionError("nothing is long enough for a summary")


def _spool(*, capacity_bytes: int = 1_000_000, memory_bytes: int = 1_000_000) -> Spool[Numbered]:
    return Spool(CODEC, capacity_bytes=capacity_bytes, memory_bytes=memory_bytes)


async def _put(spool: Spool[Numbered], item: Item) -> None:
    size = len(item.payload) if isinstance(item, ChunkBatch) else len(encoded(_numbered(item)))
    assert spool.make_room(size, lets_oldest_go=True)
    if isinstance(item, ChunkBatch):
        spool.append_batch(item)
    else:
        spool.append(*CODEC.encode(_numbered(item)))
    await spool.settle()


def _numbered(item: Item) -> Numbered:
    assert isinstance(item, Numbered)
    return item


async def _next(view: PolicyView[Numbered]) -> Numbered:
    chunk = await view.next_chunk()
    assert chunk is not None
    return chunk


def _told(chunk: Numbered) -> tuple[str, Span, int]:
    return chunk.model_dump_json(), chunk.span, chunk.dropped_bytes


def _items(groups: Sequence[Sequence[Numbered]], batched: Sequence[bool]) -> list[Item]:
    """Return the chunks of each group as a batch, or one by one."""
    return [
        item
        for group, is_batch in zip(groups, batched, strict=True)
        for item in ([batch_of(group)] if is_batch else group)
    ]


groups_of = st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.integers(0, 8)), min_size=1, max_size=12)


@pytest.mark.parametrize(
    "policy",
    [
        Buffer(),
        Window(max_chunks=4),
        Window(max_chunks=100),
        Window(max_chunks=2, wait_for_reader=True),
        Manual(),
    ],
    ids=repr,
)
@given(script=groups_of, memory=st.integers(0, 300), seed=st.integers(0, 100))
@settings(deadline=None)
async def test_batches_are_read_as_the_same_chunks_one_by_one(
    policy: Policy, script: list[tuple[int, bool, int]], memory: int, seed: int
) -> None:
    """The script says how many chunks come, whether as a batch, and how many are read then."""
    chance = random.Random(seed)
    groups = grouped([size for size, _, _ in script], text=lambda _: "é" * chance.randrange(20))
    spools = _spool(memory_bytes=memory), _spool(memory_bytes=memory)
    views = [policy.view(spool, policy_context()) for spool in spools]

    async def read(count: int) -> None:
        for _ in range(count):
            batched, single = [await _next(view) for view in views]
            assert _told(batched) == _told(single)

    def same_windows() -> ContextWindow:
        batched, single = [view.context_window() for view in views]
        inexact = {"bytes_dropped", "characters_held"}  # while a batch is cut that was not read yet
        assert batched.model_dump(exclude=inexact) == single.model_dump(exclude=inexact)
        assert (batched.bytes_dropped == 0) == (single.bytes_dropped == 0)
        return single

    for group, (_, is_batch, reads) in zip(groups, script, strict=True):
        for item in _items([group], [is_batch]):
            await _put(spools[0], item)
        for chunk in group:
            await _put(spools[1], chunk)
        held = same_windows().chunks_held
        await read(0 if isinstance(policy, Buffer) else min(reads, held))
    for spool in spools:
        spool.end()
    await read(same_windows().chunks_held)
    assert [await view.next_chunk() for view in views] == [None, None]
    assert views[0].context_window() == views[1].context_window()
    for spool in spools:
        spool.close()


streams = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=10)


@pytest.mark.parametrize(
    "policy",
    [
        Buffer(),
        Window(max_chunks=5),
        Window(max_chunks=1000),
        Window(max_chunks=3, wait_for_reader=True),
        Manual(),
        Summarise(chunk_threshold=1000, max_summary_length=1_000_000),
    ],
    ids=repr,
)
@given(
    stream=streams,
    length=st.integers(0, 700),
    capacity=st.integers(1024, 4096),
    paces=st.lists(st.integers(0, 9), min_size=1, max_size=9),
)
@settings(max_examples=60, deadline=None)
async def test_whatever_does_not_reach_the_reader_is_told_to_the_byte(
    policy: Policy, stream: list[tuple[int, bool]], length: int, capacity: int, paces: list[int]
) -> None:
    groups = grouped([size for size, _ in stream], text=lambda number: "x" * (length * (number % 3) // 2))
    chunks, spans = list(chain(*groups)), spans_of(list(chain(*groups)))
    tasks = BackgroundTasks()
    tool = NumberedTool(_items(groups, [is_batch for _, is_batch in stream]))
    services = session_services(tasks, text_model=lambda name: _NoModel())
    read: list[Numbered] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        tool.open(policy, tasks, services=services, output_bytes=capacity) as session,
    ):
        async for chunk in session:
            read.append(chunk)
            for _ in range(paces[len(read) % len(paces)]):
                await asyncio.sleep(0)
        window, status = session.context_window(), session.status
    await tasks.aclose(timeout_s=PATIENCE_S)
    assert status is not None
    position = 0
    for chunk in read:
        assert (chunk.number, chunk.text) == (chunks[chunk.number].number, chunks[chunk.number].text)
        assert chunk.span == spans[chunk.number]
        assert chunk.dropped_bytes == chunk.span.start - position
        position = chunk.span.end
    numbers = [chunk.number for chunk in read]
    assert window.bytes_dropped == sum(chunk.dropped_bytes for chunk in read)
    if isinstance(policy, Window) and not policy.wait_for_reader:
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == len(chunks) - 1
        assert window.chunks_dropped == len(chunks) - len(numbers)
    else:  # all, or a beginning of it and a status that says so
        assert numbers == list(range(len(numbers)))
        assert (len(numbers) == len(chunks)) == (status.reason == "exited")
        assert window.chunks_dropped == 0
    if isinstance(policy, Window):
        assert status.reason == "exited"


@pytest.mark.parametrize("memory_bytes", [0, 1_000_000], ids=["disk", "memory"])
async def test_cancelled_next_chunk_loses_nothing_of_a_batch(memory_bytes: int) -> None:
    chance, spool, found, cancelled = random.Random(5), _spool(memory_bytes=memory_bytes), list[int](), 0
    view = Window(max_chunks=100_000).view(spool, policy_context())
    sizes = [chance.randrange(1, 6) for _ in range(100)]

    async def pump() -> None:
        for group in grouped(sizes):
            await _put(spool, batch_of(group))
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
        spool.end()

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
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
    assert found == list(range(sum(sizes)))
    assert cancelled > 50
    spool.close()


async def test_window_slides_into_the_middle_of_a_batch_and_says_how_far() -> None:
    spool = _spool()
    view = Window(max_chunks=3).view(spool, policy_context())
    [chunks] = grouped([10], text=lambda number: "x" * number)
    spans = spans_of(chunks)
    await _put(spool, batch_of(chunks))
    assert view.context_window().chunks_held == 3
    first = await _next(view)
    assert (first.number, first.span, first.dropped_bytes) == (7, spans[7], spans[7].start)
    assert await spool.read_range(0, first.dropped_bytes) == b"".join(map(encoded, chunks[:7]))
    await _put(spool, Numbered(number=10))
    await _put(spool, Numbered(number=11))
    second = await _next(view)
    assert (second.number, second.dropped_bytes) == (9, spans[8].end - spans[8].start)
    window = view.context_window()
    assert (window.chunks_held, window.chunks_dropped) == (2, 8)
    assert window.bytes_dropped == first.dropped_bytes + second.dropped_bytes
    spool.close()


async def test_rest_of_a_half_read_batch_that_is_let_go_is_counted() -> None:
    spool = _spool()
    view = Window(max_chunks=100).view(spool, policy_context())
    [chunks] = grouped([6])
    size = len(encoded(chunks[0]))
    await _put(spool, batch_of(chunks[:5]))
    assert [(await _next(view)).number for _ in range(2)] == [0, 1]
    spool.evict_oldest()
    await _put(spool, chunks[5])
    assert view.context_window().bytes_dropped == 3 * size
    last = await _next(view)
    assert (last.number, last.dropped_bytes) == (5, 3 * size)
    assert view.context_window().chunks_dropped == 3
    spool.close()


async def test_half_read_batch_counts_as_what_is_left_of_it_and_not_as_dropped() -> None:
    spool = _spool()
    view = Window(max_chunks=100).view(spool, policy_context())
    [chunks] = grouped([3], text=lambda number: "x" * (100 if number else 1))
    await _put(spool, batch_of(chunks))
    await _next(view)
    window = view.context_window()
    assert (window.chunks_held, window.chunks_dropped, window.bytes_dropped) == (2, 0, 0)
    assert window.characters_held == sum(len(encoded(chunk)) for chunk in chunks[1:])
    spool.close()


@pytest.mark.parametrize("merges", [False, True])
async def test_batches_and_their_neighbours_are_never_joined_into_something_that_is_read(
    merges: bool,
) -> None:
    spool: Spool[Numbered] = Spool(NumberedCodec(merges=merges), capacity_bytes=1_000_000)
    view = Window(max_chunks=100).view(spool, policy_context())
    [chunks] = grouped([4])
    await _put(spool, batch_of(chunks[:2]))
    await _put(spool, chunks[2])  # of the same tag as the batch before it
    assert [(await _next(view)).number for _ in range(3)] == [0, 1, 2]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await view.next_chunk()
    await _put(spool, batch_of(chunks[3:]))
    assert (await _next(view)).number == 3
    assert spool.next_index == 4
    spool.close()


async def test_tiny_batches_that_were_read_do_not_stay_apart() -> None:
    """As with tiny writes: a record costs the host more than the bytes that it is counted for."""
    spool = _spool(capacity_bytes=64_000_000)
    view = Window(max_chunks=10).view(spool, policy_context())
    [chunks] = grouped([5000])
    for chunk in chunks:
        await _put(spool, batch_of([chunk]))
        assert (await _next(view)).number == chunk.number
    assert len(spool._records) < 20
    assert await spool.read_range(0, spool.total_bytes) == b"".join(map(encoded, chunks))
    spool.close()


@pytest.mark.parametrize("merges", [False, True])
async def test_batches_are_counted_for_what_they_cost(merges: bool) -> None:
    spool: Spool[Numbered] = Spool(NumberedCodec(merges=merges), capacity_bytes=10_000)
    batch = ChunkBatch(b"", 1)
    count = 0
    while spool.fits(0):
        spool.append_batch(batch)
        count += 1
    assert count <= 10_000 / 64 + 1
    for _ in range(count):
        spool.evict_oldest()
    assert spool.fits(10_000)


async def test_batch_larger_than_the_spool_leaves_its_newest_chunks_to_a_window(
    tasks: BackgroundTasks,
) -> None:
    [chunks] = grouped([30], text=lambda _: "x" * 100)
    tool = NumberedTool([batch_of(chunks)])
    async with asyncio.timeout(PATIENCE_S), tool.open(Window(), tasks, output_bytes=1024) as session:
        await session.finalize()
        numbers = [chunk.number async for chunk in session]
        assert numbers == list(range(30 - len(numbers), 30))
        assert len(numbers) > 3
        assert str(session.status) == "exited"


async def test_batch_that_does_not_fit_leaves_its_beginning_to_a_buffer(tasks: BackgroundTasks) -> None:
    [chunks] = grouped([30], text=lambda _: "x" * 100)
    tool = NumberedTool([batch_of(chunks[:2]), batch_of(chunks[2:]), Numbered(number=99)])
    async with asyncio.timeout(PATIENCE_S), tool.open(Buffer(), tasks, output_bytes=1024) as session:
        numbers = [chunk.number async for chunk in session]
        assert numbers == list(range(len(numbers)))
        assert 3 < len(numbers) < 30
        assert session.status is not None
        assert session.status.reason == "output_limit"


async def test_what_comes_after_a_chunk_without_room_is_not_kept_as_if_it_followed(
    tasks: BackgroundTasks,
) -> None:
    small, large = Numbered(number=0), Numbered(number=1, text="x" * 2000)
    tool = NumberedTool([small, large, Numbered(number=2), batch_of([Numbered(number=3)])])
    async with asyncio.timeout(PATIENCE_S), tool.open(Buffer(), tasks, output_bytes=1024) as session:
        assert [chunk.number async for chunk in session] == [0]
        assert session.status is not None
        assert session.status.reason == "output_limit"


async def test_a_chunk_that_can_never_fit_costs_nothing_that_waits(tasks: BackgroundTasks) -> None:
    tool = NumberedTool([Numbered(number=0), Numbered(number=1, text="x" * 2000)])
    async with asyncio.timeout(PATIENCE_S), tool.open(Window(), tasks, output_bytes=1024) as session:
        await session.finalize()
        assert [chunk.number async for chunk in session] == [0]


async def test_filters_see_every_text_of_a_batch(tasks: BackgroundTasks) -> None:
    [chunks] = grouped([5], text=lambda number: f"{number}: \x1b[31mswordfish")
    tool = NumberedTool([batch_of(chunks[:3]), chunks[3], batch_of(chunks[4:])])
    filters = [CleanControls(), Redact.model_validate({"values": ["swordfish"]})]
    async with asyncio.timeout(PATIENCE_S), tool.open(Window(), tasks, filters=filters) as session:
        texts = [chunk.text async for chunk in session]
        held = await session.read_range(0, 10_000)
    assert texts == [f"{number}: [redacted]" for number in range(5)]
    assert b"swordfish" not in held


@pytest.mark.parametrize("said", [1, 3], ids=["too few", "too many"])
async def test_batch_that_holds_another_number_of_chunks_is_an_error_and_is_passed_over(
    said: int, tasks: BackgroundTasks
) -> None:
    [chunks] = grouped([4])
    wrong = ChunkBatch(batch_of(chunks[1:3]).payload, said)
    tool = NumberedTool([chunks[0], wrong, batch_of(chunks[3:])])
    async with asyncio.timeout(PATIENCE_S), tool.open(Window(), tasks) as session:
        first = await session.next_chunk()
        with pytest.raises(SessionBroken, match=f"batch of {said} chunks holds 2"):
            await session.next_chunk()
        last = await session.next_chunk()
        assert first is not None
        assert last is not None
        assert (first.number, last.number, last.dropped_bytes) == (0, 3, len(wrong.payload))
        assert await session.next_chunk() is None
        assert session.context_window().chunks_dropped == said


@pytest.mark.parametrize("count", [0, -1])
def test_batch_without_a_chunk_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        ChunkBatch(b"", count)


@pytest.mark.parametrize("policy", [Window(), Summarise()], ids=repr)
async def test_tool_whose_codec_takes_no_batch_apart_is_told_so(
    policy: Policy, tasks: BackgroundTasks
) -> None:
    [chunks] = grouped([2])
    tool = NumberedTool([chunks[0], batch_of(chunks[1:])], codec=JsonCodec(Numbered))
    services = session_services(tasks, text_model=lambda name: _NoModel())
    opening = tool.open(policy, tasks, services=services)
    async with asyncio.timeout(PATIENCE_S), opening as session:
        first = await session.next_chunk()
        assert first is not None
        assert first.number == 0
        with pytest.raises(TypeError, match="no BatchCodec"):
            await session.next_chunk()
        with pytest.raises(TypeError):
            await session.finalize()


async def test_batches_that_are_there_already_let_others_run(tasks: BackgroundTasks) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while not tool_ended.is_set():
            turns += 1
            await asyncio.sleep(0)

    tool_ended = asyncio.Event()
    tool = NumberedTool([batch_of(group) for group in grouped([3] * 200)])
    async with (
        asyncio.timeout(PATIENCE_S),
        tool.open(Buffer(), tasks) as session,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(other())
        await session.finalize()
        tool_ended.set()
    assert turns >= 200


class _Deep(Numbered):
    """A chunk as `trusted_maker` makes it must do all that others do."""

    tags: tuple[str, ...] = ()


def _trusted(**changes: Any) -> _Deep:
    values: dict[str, Any] = {
        "span": Span(1, 2),
        "dropped_bytes": 0,
        "number": 1,
        "text": "one",
        "tags": ("a",),
    }
    return _Deep.trusted_maker()(values | changes)


def test_trusted_chunk_is_as_good_as_one_that_was_checked() -> None:
    chunk, checked = _trusted(), _Deep(span=Span(1, 2), number=1, text="one", tags=("a",))
    assert chunk == checked
    assert chunk.model_dump_json() == checked.model_dump_json()
    assert chunk.model_dump(exclude_unset=True) == {"number": 1, "text": "one", "tags": ("a",)}
    for made in (
        copy.copy(chunk),
        copy.deepcopy(chunk),
        pickle.loads(pickle.dumps(chunk)),
        chunk.model_copy(),
    ):
        assert made == checked
    assert repr(chunk) == repr(checked)


def test_trusted_chunk_can_be_changed_and_others_stay() -> None:
    chunk, other = _trusted(), _trusted()
    chunk.dropped_bytes = 7
    changed = chunk.model_copy(update={"text": "two"})
    assert (chunk.dropped_bytes, changed.text, chunk.text) == (7, "two", "one")
    assert other == _trusted()
    assert chunk.mapped(str.upper).text == "ONE"
    assert chunk.with_text(changed.as_text()).text == "two"
