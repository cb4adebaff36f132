"""The reaper removes what belongs to nobody any more, and never what belongs to somebody who is alive."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.engine.base import (
    DEADLINE_LABEL,
    OWNER_LABEL,
    ContainerId,
    ContainerInfo,
    ContainerSpec,
    EngineInfo,
)
from aeolus_sandbox.errors import EngineError, EngineUnavailable
from aeolus_sandbox.sandboxes.owner import Owner
from aeolus_sandbox.sandboxes.reaper import Reaper
from aeolus_sandbox.testing.engine_subject import Subject
from aeolus_sandbox.testing.local_engine import LocalEngine

ALIVE = Owner.this_process()
GONE = replace(ALIVE, started="1")
ELSEWHERE = replace(ALIVE, host="another")
NOW = 1_000_000.0


@pytest.fixture
async def local() -> AsyncIterator[LocalEngine]:
    async with LocalEngine() as engine:
        yield engine


async def _launch(engine: LocalEngine, labels: Mapping[str, str]) -> ContainerId:
    spec: ContainerSpec = Subject(engine, image="local").spec("exec sleep 60")
    return (await engine.launch(spec.model_copy(update={"labels": labels}))).id


def _labels(owner: Owner | str, deadline: float | str = NOW) -> dict[str, str]:
    return {OWNER_LABEL: str(owner), DEADLINE_LABEL: str(deadline)}


def _reaper(engine: LocalEngine, *, now: float = NOW) -> Reaper:
    return Reaper(engine, now=lambda: now)


@pytest.mark.parametrize("now", [0.0, NOW - 3600, NOW, NOW + 3600, NOW * 1000])
async def test_a_living_owners_container_is_never_removed_whatever_the_clock_says(
    local: LocalEngine, now: float
) -> None:
    kept = await _launch(local, _labels(ALIVE))
    reaped = await _reaper(local, now=now).sweep()
    assert (reaped.removed, reaped.failed, reaped.living) == ((), (), 1)
    assert local.knows(kept)


@pytest.mark.parametrize("now", [0.0, NOW - 3600, NOW + 3600])
async def test_a_dead_owners_container_is_removed_whatever_the_clock_says(
    local: LocalEngine, now: float
) -> None:
    doomed, kept = await _launch(local, _labels(GONE)), await _launch(local, _labels(ALIVE))
    reaped = await _reaper(local, now=now).sweep()
    assert reaped.removed == (doomed,)
    assert not local.knows(doomed)
    assert local.knows(kept)


@pytest.mark.parametrize(
    "owner", [str(ELSEWHERE), "of-some-other-version"], ids=["elsewhere", "other version"]
)
async def test_where_the_owner_cannot_be_judged_only_its_deadline_counts(
    local: LocalEngine, owner: str
) -> None:
    over, running = (
        await _launch(local, _labels(owner, NOW - 1)),
        await _launch(local, _labels(owner, NOW + 1)),
    )
    odd = await _launch(local, _labels(owner, "0001-01-01T00:00:00Z"))
    none = await _launch(local, {OWNER_LABEL: owner})
    assert (await _reaper(local).sweep()).removed == (over,)
    assert all(local.knows(each) for each in (running, odd, none))


async def test_what_has_not_our_label_is_never_touched(local: LocalEngine) -> None:
    other = await _launch(local, {"somebody": "else", DEADLINE_LABEL: "0"})
    assert (await _reaper(local).sweep()).removed == ()
    assert (await _reaper(local).sweep_owner("")).removed == ()
    assert local.knows(other)


async def test_an_owner_can_be_swept_alive_or_not_and_alone(local: LocalEngine) -> None:
    mine, other = await _launch(local, _labels(ALIVE)), await _launch(local, _labels(Owner.this_process()))
    assert (await _reaper(local).sweep_owner(str(ALIVE))).removed == (mine,)
    assert local.knows(other)


async def test_one_that_cannot_be_removed_is_said_and_the_others_go(local: LocalEngine) -> None:
    first, second = await _launch(local, _labels(GONE)), await _launch(local, _labels(GONE))
    local.fail_next("remove_container", EngineError("no"))
    reaped = await _reaper(local).sweep()
    assert (reaped.failed, reaped.removed) == ((first,), (second,))
    assert (await _reaper(local).sweep()).removed == (first,)


async def test_an_engine_that_does_not_answer_is_said(local: LocalEngine) -> None:
    local.lose_connection()
    with pytest.raises(EngineUnavailable):
        await _reaper(local).sweep()
    local.restore_connection()


owners = st.sampled_from([ALIVE, GONE, ELSEWHERE, "nonsense"])
deadlines = st.sampled_from(["", "-1", "nan", "inf", "1e400", "x"]) | st.floats(0, 2 * NOW).map(str)


class _Listing(LocalEngine):
    """Lists what it is told, and notes what is removed."""

    def __init__(self, containers: list[ContainerInfo]) -> None:
        super().__init__()
        self.containers = containers
        self.removed: list[ContainerId] = []

    async def list_containers(self, labels: Mapping[str, str | None]) -> list[ContainerInfo]:
        return self.containers

    async def remove_container(self, container: ContainerId) -> None:
        self.removed.append(container)

    async def info(self) -> EngineInfo:
        raise NotImplementedError


@given(marked=st.lists(st.tuples(owners, deadlines), max_size=8), now=st.floats(0, 2 * NOW))
async def test_any_mixture_keeps_the_living_and_removes_the_dead(
    marked: list[tuple[Owner | str, str]], now: float
) -> None:
    containers = [
        ContainerInfo(ContainerId(str(i)), _labels(*labels), "running") for i, labels in enumerate(marked)
    ]
    engine = _Listing(containers)
    await Reaper(engine, now=lambda: now).sweep()
    removed = set(engine.removed)
    assert not removed & {str(i) for i, (owner, _) in enumerate(marked) if owner is ALIVE}
    assert removed >= {str(i) for i, (owner, _) in enumerate(marked) if owner is GONE}
