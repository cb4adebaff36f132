"""What is kept serves one session at a time, in order, and goes when nobody wants it any more."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import EngineError, QuotaExceeded, SessionClosed
from aeolus_sandbox.sandboxes.kept import KeptStore
from aeolus_sandbox.sandboxes.lease import Lease
from aeolus_sandbox.testing.engine_subject import Subject
from aeolus_sandbox.testing.local_engine import LocalEngine


@dataclass
class _Kernel:
    number: int
    is_usable: bool = True
    answers: bool = True
    recreated: bool = False
    image: str = "local"
    language: str | None = "python"

    async def wait_usable(self) -> bool:
        return self.answers

    def mark_recreated(self) -> None:
        self.recreated = True


@dataclass
class _Maker:
    """Makes kernels, each with a container of its own."""

    engine: LocalEngine
    made: list[_Kernel] = field(default_factory=list)
    failure: Exception | None = None

    async def __call__(self, lease: Lease) -> _Kernel:
        await lease.take(await self.engine.launch(Subject(self.engine, image="local").spec("exec sleep 60")))
        if self.failure is not None:
            raise self.failure
        self.made.append(_Kernel(len(self.made)))
        return self.made[-1]


@pytest.fixture
async def make() -> AsyncIterator[_Maker]:
    async with LocalEngine() as engine:
        yield _Maker(engine)


@pytest.fixture
async def tasks() -> AsyncIterator[BackgroundTasks]:
    tasks = BackgroundTasks()
    yield tasks
    await tasks.aclose(timeout_s=5)


async def _wait_gone(make: _Maker, *, left: int = 0) -> None:
    async with asyncio.timeout(5):
        while len(await make.engine.list_containers({})) > left:  # noqa: ASYNC110 - an engine has no event for it
            await asyncio.sleep(0.005)


async def test_the_second_session_gets_what_the_first_had(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks)
    async with store.borrow("a", make) as first:
        pass
    async with store.borrow("a", make) as second, store.borrow("b", make) as other:
        assert second is first
        assert other is not first
    assert store.keys() == ["a", "b"]
    await store.aclose()
    assert await make.engine.list_containers({}) == []


async def test_users_come_one_after_the_other_in_order(make: _Maker, tasks: BackgroundTasks) -> None:
    store, order, inside = KeptStore(tasks), list[int](), 0

    async def use(number: int) -> None:
        nonlocal inside
        async with store.borrow("a", make):
            inside += 1
            assert inside == 1
            order.append(number)
            await asyncio.sleep(0.001)
            inside -= 1

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(use(number))
    assert order == list(range(10))
    assert len(make.made) == 1
    await store.aclose()


async def test_one_who_gives_up_waiting_does_not_hold_the_others_up(
    make: _Maker, tasks: BackgroundTasks
) -> None:
    store = KeptStore(tasks)

    async def use() -> None:
        async with store.borrow("a", make):
            pass

    async with asyncio.timeout(10), asyncio.TaskGroup() as group, store.borrow("a", make):
        waiting = group.create_task(use())
        following = group.create_task(use())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        assert not following.done()
    assert waiting.cancelled()
    assert store.keys() == ["a"]
    await store.aclose()


async def test_what_is_not_usable_any_more_is_replaced_and_removed(
    make: _Maker, tasks: BackgroundTasks
) -> None:
    store = KeptStore(tasks)
    async with store.borrow("a", make) as first:
        assert isinstance(first, _Kernel)
        first.is_usable = False
    await _wait_gone(make)
    async with store.borrow("a", make) as second:
        assert second is not first
        assert isinstance(second, _Kernel)
        assert second.recreated
        assert not first.recreated
    async with asyncio.TaskGroup() as group, store.borrow("a", make) as broken:
        assert isinstance(broken, _Kernel)
        broken.is_usable = False

        async def follow() -> None:
            async with store.borrow("a", make) as next_one:
                assert next_one is not broken
                assert isinstance(next_one, _Kernel)
                assert next_one.recreated

        group.create_task(follow())
        await asyncio.sleep(0)
    assert len(make.made) == 3
    assert len(await make.engine.list_containers({})) == 1
    await store.aclose()


async def test_what_nobody_uses_is_removed_after_a_while(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks, idle_s=0.05)
    async with store.borrow("a", make):
        await asyncio.sleep(0.1)
        assert store.keys() == ["a"]  # in use is not idle
    await _wait_gone(make)
    assert store.keys() == []


async def test_using_it_again_starts_the_while_anew(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks, idle_s=0.2)
    for _ in range(4):
        async with store.borrow("a", make):
            pass
        await asyncio.sleep(0.1)
    assert len(make.made) == 1
    await store.aclose()


async def test_one_that_cannot_be_made_leaves_nothing_and_can_be_tried_again(
    make: _Maker, tasks: BackgroundTasks
) -> None:
    store = KeptStore(tasks)
    make.failure = EngineError("no kernel")
    with pytest.raises(EngineError, match="no kernel"):
        async with store.borrow("a", make):
            pass
    await _wait_gone(make)
    assert store.keys() == []
    make.failure = None
    async with store.borrow("a", make):
        pass
    await store.aclose()


async def test_a_maker_that_is_cancelled_leaves_nothing(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks)

    async def borrow() -> None:
        async with store.borrow("a", make):
            await asyncio.Event().wait()

    for turns in (0, 1, 2, 5, 20):
        async with asyncio.TaskGroup() as group:
            borrowing = group.create_task(borrow())
            for _ in range(turns):
                await asyncio.sleep(0.001)
            borrowing.cancel()
    await store.aclose()
    await _wait_gone(make)


async def test_dropping_removes_it_once_nobody_uses_it(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group, store.borrow("a", make):
        dropping = group.create_task(store.drop("a"))
        await asyncio.sleep(0.01)
        assert not dropping.done()
    assert store.keys() == []
    assert await make.engine.list_containers({}) == []
    await store.drop("never there")


async def test_a_removal_that_fails_at_closing_is_said_and_the_others_go(
    make: _Maker, tasks: BackgroundTasks
) -> None:
    store = KeptStore(tasks)
    for key in "abc":
        async with store.borrow(key, make):
            pass
    make.engine.fail_next("remove_container", EngineError("not now"))
    with pytest.raises(EngineError, match="not now"):
        await store.aclose()
    assert len(await make.engine.list_containers({})) == 1


async def test_one_that_expired_is_announced_as_recreated(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks, idle_s=0.01)
    async with store.borrow("a", make):
        pass
    await _wait_gone(make)
    async with store.borrow("a", make) as second:
        assert make.made.index(second) == 1  # type: ignore[arg-type]
        assert make.made[1].recreated
    await store.aclose()


async def test_one_that_was_dropped_by_wish_is_not_announced(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks)
    async with store.borrow("a", make):
        pass
    await store.drop("a")
    async with store.borrow("a", make):
        assert not make.made[1].recreated
    await store.aclose()


async def test_beyond_the_limit_the_one_unused_for_longest_goes(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks, max_kept=2)
    for key in ("a", "b", "a", "c"):
        async with store.borrow(key, make):
            pass
    assert store.keys() == ["a", "c"]
    await _wait_gone(make, left=2)
    await store.aclose()


async def test_beyond_the_limit_nothing_in_use_goes(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks, max_kept=1)
    async with store.borrow("a", make):
        with pytest.raises(QuotaExceeded, match="max_kept"):
            async with store.borrow("b", make):
                pytest.fail("it was lent")
    assert store.keys() == ["a"]
    await store.aclose()


async def test_what_is_being_made_counts_against_the_limit(make: _Maker, tasks: BackgroundTasks) -> None:
    store, made = KeptStore(tasks, max_kept=1), asyncio.Event()

    async def make_slowly(lease: Lease) -> _Kernel:
        await made.wait()
        return await make(lease)

    async def use_first() -> None:
        async with store.borrow("a", make_slowly):
            pass

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(use_first())
        await asyncio.sleep(0)
        with pytest.raises(QuotaExceeded, match="max_kept"):
            async with store.borrow("b", make):
                pytest.fail("it was lent")
        made.set()
    assert store.keys() == ["a"]
    await store.aclose()


async def _use(store: KeptStore, key: str, make: _Maker) -> _Kernel:
    async with store.borrow(key, make) as kernel:
        assert isinstance(kernel, _Kernel)
        return kernel


async def test_one_that_does_not_answer_is_replaced_and_announced(
    make: _Maker, tasks: BackgroundTasks
) -> None:
    store = KeptStore(tasks)
    (await _use(store, "a", make)).answers = False
    second = await _use(store, "a", make)
    assert (second.number, second.recreated) == (1, True)
    assert len(await make.engine.list_containers({})) == 1
    await store.aclose()


async def test_a_loss_is_announced_also_when_the_next_one_could_not_be_made_at_first(
    make: _Maker, tasks: BackgroundTasks
) -> None:
    store = KeptStore(tasks)
    (await _use(store, "a", make)).answers = False
    make.failure = EngineError("not now")
    with pytest.raises(EngineError, match="not now"):
        await _use(store, "a", make)
    make.failure = None
    assert (await _use(store, "a", make)).recreated
    assert not (await _use(store, "b", make)).recreated
    make.failure = EngineError("not now")
    with pytest.raises(EngineError, match="not now"):
        await store.restart("b")
    make.failure = None
    assert (await _use(store, "b", make)).recreated
    await store.aclose()


async def test_one_that_is_old_goes_however_often_it_is_used(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks, lifetime_s=0.1)
    async with asyncio.timeout(5):
        while (kernel := await _use(store, "a", make)).number == 0:  # noqa: ASYNC110 - it is the use that counts
            await asyncio.sleep(0.01)
    assert kernel.recreated
    await _wait_gone(make)  # also without another use
    assert store.keys() == []


async def test_one_in_use_outlives_its_lifetime(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks, lifetime_s=0.01)
    async with store.borrow("a", make):
        await asyncio.sleep(0.05)
        assert store.keys() == ["a"]
    await _wait_gone(make)


async def test_restart_gives_a_new_one_of_the_same_kind_that_nobody_is_warned_of(
    make: _Maker, tasks: BackgroundTasks
) -> None:
    store = KeptStore(tasks)
    await _use(store, "a", make)
    await store.restart("a")
    assert len(await make.engine.list_containers({})) == 1
    second = await _use(store, "a", make)
    assert (second.number, second.recreated) == (1, False)
    await store.aclose()


async def test_restart_stands_in_line_with_users(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group, store.borrow("a", make):
        restarting = group.create_task(store.restart("a"))
        await asyncio.sleep(0)
        following = group.create_task(_use(store, "a", make))
        await asyncio.sleep(0.02)
        assert not restarting.done()
    assert following.result().number == 1
    await store.aclose()


async def test_what_is_not_kept_is_not_restarted_and_not_lent(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks)
    for using in (store.restart("a"), store.lend("a").__aenter__()):
        with pytest.raises(SessionClosed, match="nothing is kept under 'a'"):
            await using
    await _use(store, "a", make)
    async with store.lend("a") as kernel:
        assert kernel is make.made[0]
    await store.aclose()


async def test_one_that_is_dropped_after_it_expired_is_not_announced(
    make: _Maker, tasks: BackgroundTasks
) -> None:
    store = KeptStore(tasks, idle_s=0.01)
    await _use(store, "a", make)
    await _wait_gone(make)
    await store.drop("a")
    assert not (await _use(store, "a", make)).recreated
    await store.aclose()


async def test_one_that_turns_out_unusable_is_replaced_for_its_user_before_anybody_else_has_it(
    make: _Maker, tasks: BackgroundTasks
) -> None:
    store = KeptStore(tasks)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group, store.borrow("a", make) as first:
        following = group.create_task(_use(store, "a", make))
        await asyncio.sleep(0)
        assert await store.renew("a", make) is first
        assert isinstance(first, _Kernel)
        first.is_usable = False
        second = await store.renew("a", make)
        assert second is make.made[1]
        assert make.made[1].recreated
        assert len(await make.engine.list_containers({})) == 1
        assert not following.done()
    assert following.result() is second
    await store.aclose()


async def test_one_that_cannot_be_replaced_for_its_user_is_lost_and_announced_to_the_next(
    make: _Maker, tasks: BackgroundTasks
) -> None:
    store = KeptStore(tasks)
    with pytest.raises(SessionClosed, match="nothing is kept under 'a'"):
        await store.renew("a", make)
    async with store.borrow("a", make) as first:
        assert isinstance(first, _Kernel)
        first.is_usable = False
        make.failure = EngineError("not now")
        with pytest.raises(EngineError, match="not now"):
            await store.renew("a", make)
    make.failure = None
    assert (await _use(store, "a", make)).recreated
    await store.aclose()


async def test_items_say_what_is_kept_and_who_is_busy(make: _Maker, tasks: BackgroundTasks) -> None:
    store = KeptStore(tasks)
    await _use(store, "b", make)
    await asyncio.sleep(0.01)
    async with store.borrow("a", make):
        busy, idle = store.items()
    assert (busy.key, busy.is_busy, busy.idle_s) == ("a", True, 0.0)
    assert (busy.image, busy.language) == ("local", "python")
    assert (idle.key, idle.is_busy) == ("b", False)
    assert 0.01 <= idle.idle_s <= idle.age_s
    await store.aclose()
