"""Which runs may start, who may end them, and what is found afterwards."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.errors import CheckpointConflict, ConfigurationError, RunInterrupted
from aeolus_sandbox.storage.checkpoints import Checkpoints, Claimed, Running, Stored, check_key
from aeolus_sandbox.storage.database import Database

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
LIMIT_S = 60

Outcome = Claimed | Stored | Running


class Clock:
    """A wall clock that somebody sets."""

    def __init__(self) -> None:
        self.time = NOON

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def runs(tmp_path: Path, clock: Clock) -> AsyncIterator[Checkpoints]:
    async with asyncio.timeout(LIMIT_S), aclosing(Database(tmp_path / "state.db")) as database:
        yield Checkpoints(database, now=clock)


async def claim(
    runs: Checkpoints,
    key: str = "key",
    *,
    owner: str = "us",
    tool_name: str = "tool",
    input_hash: str = "hash",
    may_repeat: bool = True,
) -> Outcome:
    return await runs.claim(
        key, tool_name=tool_name, input_hash=input_hash, owner=owner, may_repeat=may_repeat
    )


async def running(runs: Checkpoints, *, owner: str = "us") -> Running:
    outcome = await claim(runs, owner=owner)
    assert isinstance(outcome, Running)
    return outcome


async def keys(runs: Checkpoints) -> list[str]:
    return [run.key for run in await runs.list()]


# Claiming.


async def test_unknown_key_is_claimed_and_recorded(runs: Checkpoints) -> None:
    assert await claim(runs) == Claimed(1)
    run = await runs.get("key")
    assert run
    assert (run.tool_name, run.input_hash, run.owner) == ("tool", "hash", "us")
    assert (run.state, run.attempts, run.final) == ("running", 1, None)
    assert (run.created_at, run.ended_at) == (NOON, None)


async def test_stored_result_is_returned_and_nothing_is_claimed(runs: Checkpoints) -> None:
    await claim(runs)
    await runs.store("key", owner="us", attempt=1, final='{"code": 0}')
    assert await claim(runs, owner="others", may_repeat=False) == Stored('{"code": 0}')
    run = await runs.get("key")
    assert run
    assert (run.state, run.owner, run.final, run.ended_at) == ("done", "us", '{"code": 0}', NOON)


@pytest.mark.parametrize("owner", ["us", "others"])
async def test_running_key_is_nobody_elses(runs: Checkpoints, owner: str) -> None:
    await claim(runs)
    assert (await running(runs, owner=owner)).owner == "us"


@pytest.mark.parametrize("state", ["running", "done", "interrupted"])
@pytest.mark.parametrize(
    ("tool_name", "input_hash", "said"),
    [("other_tool", "hash", "other_tool"), ("tool", "SECRET", "another input")],
)
async def test_key_of_another_tool_or_input_conflicts(
    runs: Checkpoints, state: str, tool_name: str, input_hash: str, said: str
) -> None:
    await claim(runs)
    if state == "done":
        await runs.store("key", owner="us", attempt=1, final="1")
    elif state == "interrupted":
        await runs.give_up("key", owner="us", attempt=1)
    before = await runs.get("key")
    with pytest.raises(CheckpointConflict) as caught:
        await claim(runs, tool_name=tool_name, input_hash=input_hash)
    assert "'tool'" in str(caught.value)
    assert said in str(caught.value)
    assert "SECRET" not in str(caught.value)
    assert await runs.get("key") == before


async def test_interrupted_run_that_may_be_repeated_is_claimed_again(runs: Checkpoints) -> None:
    await claim(runs)
    await runs.give_up("key", owner="us", attempt=1)
    assert await claim(runs, owner="others") == Claimed(2)
    run = await runs.get("key")
    assert run
    assert (run.state, run.owner, run.attempts, run.ended_at) == ("running", "others", 2, None)


async def test_interrupted_run_that_must_not_be_repeated_is_refused(runs: Checkpoints) -> None:
    await claim(runs)
    await runs.give_up("key", owner="us", attempt=1)
    with pytest.raises(RunInterrupted, match="new key"):
        await claim(runs, may_repeat=False)
    run = await runs.get("key")
    assert run
    assert (run.state, run.attempts) == ("interrupted", 1)


# Taking over.


async def test_run_of_a_dead_owner_is_taken_over_once(runs: Checkpoints) -> None:
    await claim(runs)
    seen = await running(runs)
    assert await runs.take_over("key", seen=seen, owner="second", may_repeat=True) == Claimed(2)
    assert await runs.take_over("key", seen=seen, owner="third", may_repeat=True) is None
    assert (await running(runs)).owner == "second"


async def test_run_is_taken_over_once_within_its_own_process(runs: Checkpoints) -> None:
    await claim(runs)
    seen = await running(runs)
    assert await runs.take_over("key", seen=seen, owner="us", may_repeat=True) == Claimed(2)
    assert await runs.take_over("key", seen=seen, owner="us", may_repeat=True) is None


async def test_run_whose_owner_lives_is_not_taken_over(runs: Checkpoints) -> None:
    await claim(runs)
    await claim(runs, "of another", owner="others")
    seen = await running(runs)
    await runs.beat("others")
    assert await running(runs) == seen
    await runs.beat("us")
    assert await running(runs) == replace(seen, beat=seen.beat + 1)
    assert await runs.take_over("key", seen=seen, owner="others", may_repeat=True) is None


async def test_run_that_must_not_be_repeated_is_interrupted_instead_of_taken_over(runs: Checkpoints) -> None:
    await claim(runs)
    seen = await running(runs)
    with pytest.raises(RunInterrupted):
        await runs.take_over("key", seen=seen, owner="others", may_repeat=False)
    run = await runs.get("key")
    assert run
    assert (run.state, run.owner, run.ended_at) == ("interrupted", "us", NOON)
    assert await runs.take_over("key", seen=seen, owner="others", may_repeat=False) is None


async def test_run_that_was_ended_and_began_again_is_not_the_one_that_was_seen(runs: Checkpoints) -> None:
    await claim(runs)
    seen = await running(runs)
    await runs.give_up("key", owner="us", attempt=1)
    await claim(runs)
    assert await runs.take_over("key", seen=seen, owner="others", may_repeat=True) is None


async def test_run_that_was_forgotten_and_began_again_is_not_the_one_that_was_seen(runs: Checkpoints) -> None:
    await claim(runs)
    seen = await running(runs)
    await runs.forget("key", owner="us", attempt=1)
    await claim(runs)
    assert await runs.take_over("key", seen=seen, owner="others", may_repeat=True) is None


# Ending.


async def test_same_result_may_be_stored_twice_and_another_one_may_not(runs: Checkpoints) -> None:
    await claim(runs)
    for _ in range(2):
        await runs.store("key", owner="us", attempt=1, final="1")
    with pytest.raises(CheckpointConflict):
        await runs.store("key", owner="us", attempt=1, final="2")
    assert await claim(runs) == Stored("1")


@pytest.mark.parametrize(("owner", "attempt"), [("us", 1), ("others", 1), ("us", 2)])
async def test_run_that_was_taken_over_is_ended_by_its_new_owner_alone(
    runs: Checkpoints, owner: str, attempt: int
) -> None:
    await claim(runs)
    await runs.take_over("key", seen=await running(runs), owner="others", may_repeat=True)
    before = await runs.get("key")
    with pytest.raises(CheckpointConflict, match="taken over by another process"):
        await runs.store("key", owner=owner, attempt=attempt, final="1")
    await runs.give_up("key", owner=owner, attempt=attempt)
    await runs.forget("key", owner=owner, attempt=attempt)
    assert await runs.get("key") == before
    await runs.store("key", owner="others", attempt=2, final="2")
    assert await claim(runs) == Stored("2")


async def test_result_of_a_run_that_is_not_recorded_any_more_is_refused(runs: Checkpoints) -> None:
    with pytest.raises(CheckpointConflict):
        await runs.store("key", owner="us", attempt=1, final="1")


async def test_ended_run_is_not_ended_again(runs: Checkpoints) -> None:
    await claim(runs)
    await runs.store("key", owner="us", attempt=1, final="1")
    await runs.give_up("key", owner="us", attempt=1)
    await runs.forget("key", owner="us", attempt=1)
    assert await claim(runs) == Stored("1")


async def test_run_that_never_started_is_forgotten(runs: Checkpoints) -> None:
    await claim(runs)
    await runs.forget("key", owner="us", attempt=1)
    assert await runs.get("key") is None
    assert await claim(runs, may_repeat=False, tool_name="other_tool") == Claimed(1)


async def test_run_that_started_once_is_not_forgotten(runs: Checkpoints) -> None:
    await claim(runs)
    await runs.give_up("key", owner="us", attempt=1)
    await claim(runs)
    await runs.forget("key", owner="us", attempt=2)
    run = await runs.get("key")
    assert run
    assert (run.state, run.attempts) == ("interrupted", 2)


step = st.tuples(
    st.sampled_from(["claim", "take_over", "store", "give_up", "forget", "beat"]),
    st.sampled_from(["one", "two"]),
    st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(step, max_size=30))
def test_whatever_two_owners_do_one_run_has_one_result(steps: Sequence[tuple[str, str, bool]]) -> None:
    async def use() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with asyncio.timeout(LIMIT_S), aclosing(Database(Path(folder) / "state.db")) as database:
                results = await results_of(Checkpoints(database), steps)
        assert len(results) <= 1

    asyncio.run(use())


async def results_of(runs: Checkpoints, steps: Sequence[tuple[str, str, bool]]) -> set[str]:
    """Let two owners do what they like with all they ever claimed; return the results that were stored."""
    claims: list[tuple[str, int]] = []
    results: set[str] = set()
    for name, owner, may_repeat in steps:
        with suppress(RunInterrupted):
            if name == "claim":
                outcome: Outcome | None = await claim(runs, owner=owner, may_repeat=may_repeat)
                if isinstance(outcome, Claimed):
                    claims.append((owner, outcome.attempt))
                assert not results or outcome == Stored(next(iter(results)))
            elif name == "take_over" and isinstance(seen := await claim(runs, owner=owner), Running):
                outcome = await runs.take_over("key", seen=seen, owner=owner, may_repeat=may_repeat)
                claims += [(owner, outcome.attempt)] if outcome else []
            elif name == "beat":
                await runs.beat(owner)
        for number, (claimant, attempt) in enumerate(claims):
            if name == "store":
                with suppress(CheckpointConflict):
                    await runs.store("key", owner=claimant, attempt=attempt, final=str(number))
                    results.add(str(number))
            elif name == "give_up":
                await runs.give_up("key", owner=claimant, attempt=attempt)
            elif name == "forget":
                await runs.forget("key", owner=claimant, attempt=attempt)
    return results


# Looking, and cleaning up.


async def test_order_is_by_record_and_not_by_a_clock_that_steps_back(runs: Checkpoints, clock: Clock) -> None:
    await claim(runs, "first")
    clock.time -= timedelta(hours=1)
    await claim(runs, "second")
    await runs.store("second", owner="us", attempt=1, final="1")
    clock.time += timedelta(hours=5)
    await claim(runs, "third")
    assert await keys(runs) == ["third", "second", "first"]
    clock.time -= timedelta(days=1)
    assert [run.key for run in await runs.list(limit=2)] == ["third", "second"]
    assert [run.key for run in await runs.list(state="running")] == ["third", "first"]
    assert await claim(runs, "second") == Stored("1")


async def test_run_that_starts_again_keeps_its_place(runs: Checkpoints) -> None:
    await claim(runs, "first")
    await claim(runs, "second")
    await runs.give_up("first", owner="us", attempt=1)
    await claim(runs, "first")
    assert await keys(runs) == ["second", "first"]


async def test_place_of_a_forgotten_run_is_not_given_again(runs: Checkpoints) -> None:
    await claim(runs, "first")
    before = await runs.get("first")
    await runs.forget("first", owner="us", attempt=1)
    await claim(runs, "second")
    after = await runs.get("second")
    assert before
    assert after
    assert after.sequence > before.sequence


async def test_old_runs_that_ended_are_removed_and_running_ones_never(
    runs: Checkpoints, clock: Clock
) -> None:
    for key in ("running", "done", "interrupted", "new"):
        await claim(runs, key)
    await runs.store("done", owner="us", attempt=1, final="1")
    await runs.give_up("interrupted", owner="us", attempt=1)
    clock.time += timedelta(days=1)
    await runs.store("new", owner="us", attempt=1, final="1")
    limit = NOON + timedelta(microseconds=1)
    assert await runs.prune(ended_before=NOON) == []
    assert await runs.prune(ended_before=limit, dry_run=True) == ["done", "interrupted"]
    assert await keys(runs) == ["new", "interrupted", "done", "running"]
    assert await runs.prune(ended_before=limit) == ["done", "interrupted"]
    assert await keys(runs) == ["new", "running"]


async def test_age_is_compared_across_time_zones(runs: Checkpoints) -> None:
    await claim(runs)
    await runs.store("key", owner="us", attempt=1, final="1")
    zone = datetime.fromisoformat("2026-07-01T13:59:59+02:00")  # a second before noon
    assert await runs.prune(ended_before=zone) == []
    assert await runs.prune(ended_before=zone + timedelta(seconds=2)) == ["key"]


# Keys and results.


@pytest.mark.parametrize("key", ["k", "0197f2c0-0000-7000-8000-000000000000", "näme of 日本/1", "x" * 200])
def test_printable_keys_are_taken(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", "\0", "\x1b[2J", "\u202e", "\ud800"])
async def test_other_keys_are_refused_before_anything_is_recorded(runs: Checkpoints, key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await claim(runs, key)
    str(caught.value).encode()
    assert all(character.isprintable() for character in str(caught.value))
    with pytest.raises(ConfigurationError):
        await runs.get(key)
    assert await runs.list() == []


@pytest.mark.parametrize("final", ["", "null", '"a\0b"', '"\ud800"', "x" * 3_000_000])
async def test_any_result_comes_back_as_it_was(runs: Checkpoints, final: str) -> None:
    await claim(runs)
    await runs.store("key", owner="us", attempt=1, final=final)
    assert await claim(runs) == Stored(final)
