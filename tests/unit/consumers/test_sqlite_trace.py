"""The SQLite trace: joined rows, in order, exact, and whole transactions."""

import asyncio
import sqlite3
import stat
import tempfile
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.consumers import SqliteTraceConsumer, deliver
from aeolus_sandbox.consumers.joining import Joiner
from aeolus_sandbox.errors import StorageError
from aeolus_sandbox.events import (
    AggregatedUsage,
    Content,
    Error,
    StreamEvent,
    TurnCompleted,
    UsageUpdate,
)
from aeolus_sandbox.storage.columns import utc_now
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.traces import TraceRow, TraceRun, TraceStore
from tests.unit.consumers.runs_of_events import SESSION, Run, any_run, deliver_all, others, texts

LIMIT_S = 30.0
HOSTILE = "ok\x1b[2J\x1b]52;c;cm0=\x07\x9b31m\u202egnp\x7f\x00\ud800"


async def rows(path: Path, session_id: str = SESSION) -> list[TraceRow]:
    async with aclosing(TraceStore.at(path)) as store:
        return [row async for row in store.rows(session_id)]


async def runs(path: Path) -> list[TraceRun]:
    async with aclosing(TraceStore.at(path)) as store:
        return await store.runs()


@settings(max_examples=40)
@given(any_run(), st.lists(st.integers(0, 30), max_size=3))
async def test_rows_are_the_run_with_its_texts_joined(events: list[StreamEvent], flushed: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traces.db"
        trace = SqliteTraceConsumer(path)
        for number, event in enumerate(events):
            await deliver(trace, event)
            if number in flushed:  # as the timer does
                await trace._flush()
        read = await rows(path)
    assert [(row.event.type, row.event.content) for row in read if hasattr(row.event, "content")] == texts(
        events
    )
    assert others(row.event for row in read) == others(events)
    places = [(row.event.sequence, row.last_sequence) for row in read]
    assert [first for first, _ in places] == [0, *[last + 1 for _, last in places[:-1]]]
    assert places[-1][1] == len(events) - 1
    assert not trace.problems


@given(any_run(), st.integers(1, 100))
def test_joined_texts_are_bounded_and_equal_the_pieces(events: list[StreamEvent], limit: int) -> None:
    joiner = Joiner(limit)
    joined = [each for event in events for each in joiner.feed(event, utc_now(), 0.0)] + joiner.flush()
    assert texts(each.event for each in joined) == texts(events)
    longest = max((len(event.content) for event in events if hasattr(event, "content")), default=0)
    assert all(each.characters < limit + longest for each in joined if each.texts)


async def test_exact_text_stays_escaped(tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    events = Run().whole((Content, {"content": HOSTILE}))
    await deliver_all(SqliteTraceConsumer(path), events)
    assert [row.event for row in await rows(path)] == events
    connection = sqlite3.connect(path)
    stored = connection.execute("SELECT event FROM rows WHERE type = 'content'").fetchone()[0]
    connection.close()
    assert all(0x20 <= ord(character) < 0x7F for character in stored)


async def test_run_knows_its_agent_state_and_usage(tmp_path: Path) -> None:
    path = tmp_path / "new" / "traces.db"
    usage = AggregatedUsage(requests=2, output_tokens=7)
    await deliver_all(SqliteTraceConsumer(path), Run("one").whole((UsageUpdate, {"snapshot": usage})))
    named = SqliteTraceConsumer(path, session_id="mine", agent="my-agent", model="my-model")
    await deliver_all(named, Run("two").whole((Error, {"message": "x"})))
    latest, first = await runs(path)
    assert (first.session_id, first.agent, first.model) == ("one", "tester", "test/model")
    assert (first.state, first.usage, first.rows) == ("done", usage, 3)
    assert (latest.session_id, latest.agent, latest.model) == ("mine", "my-agent", "my-model")
    assert (latest.state, latest.usage, latest.lost_events) == ("error", None, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_order_is_that_of_the_sequence_and_not_of_the_clock(tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    moment = utc_now()
    store = TraceStore.at(path)
    run = TraceRun(id="r", session_id=SESSION, agent="", model="", started_at=moment)
    events = Run().whole(*[(TurnCompleted, {"turn": 1, "stop_reason": "x"})] * 500)
    written = [
        TraceRow(event=event, last_sequence=event.sequence, time=moment, elapsed_ms=-float(event.sequence))
        for event in events
    ]
    await store.write(run, written[::-1])
    await store.write(run, written[100:200])  # again: nobody knew whether it had been made
    await store.aclose()
    assert [row.event for row in await rows(path)] == events


async def test_several_runs_of_a_session_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    events = Run().whole((Content, {"content": "x"}))
    trace = SqliteTraceConsumer(path)
    await deliver_all(trace, events)
    await deliver_all(trace, events[:2])  # cut off
    await deliver_all(trace, events)
    await deliver_all(SqliteTraceConsumer(path), Run("other").whole())
    read = await rows(path)
    assert [row.event for row in read] == events + events[:2] + events
    async with aclosing(TraceStore.at(path)) as store:
        assert [run.state for run in await store.runs_of(SESSION)] == ["done", "running", "done"]
        assert [run.session_id for run in await store.runs(limit=2)] == ["other", SESSION]


async def test_events_reach_the_file_at_the_end_of_a_turn(tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    trace = SqliteTraceConsumer(path, flush_s=3600)
    run = Run()
    await deliver_all(trace, [run.event(Content, content="a"), run.event(Content, content="b")])
    assert not path.exists()
    await deliver(trace, run.event(TurnCompleted, turn=1, stop_reason="x"))
    assert [row.last_sequence for row in await rows(path)] == [1, 2]
    await trace.aclose()


async def test_events_reach_the_file_after_a_while(tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    trace = SqliteTraceConsumer(path, flush_s=0.01)
    run = Run()
    await deliver_all(trace, [run.event(Content, content="a"), run.event(Content, content="b")])
    async with asyncio.timeout(LIMIT_S):
        while not (read := await rows(path)):  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.01)
    assert read[0].event.model_dump()["content"] == "ab"
    await deliver(trace, run.event(Content, content="c"))
    await trace.aclose()
    assert [row.event.model_dump()["content"] for row in await rows(path)] == ["abc"]


async def test_cancelled_run_loses_nothing_that_was_taken(tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    trace = SqliteTraceConsumer(path, flush_s=3600)
    run = Run()
    async with asyncio.TaskGroup() as group:
        turn = [run.event(Content, content="a"), run.event(TurnCompleted, turn=1, stop_reason="x")]
        running = group.create_task(deliver_all(trace, turn))
        await asyncio.sleep(0)
        running.cancel()
    await trace.aclose()
    assert [row.event for row in await rows(path)] == turn


async def test_state_file_and_trace_file_are_not_taken_for_each_other(tmp_path: Path) -> None:
    state, trace = tmp_path / "state.db", tmp_path / "traces.db"
    async with aclosing(Database(state)) as database:
        await database.write(lambda transaction: None)
    with pytest.raises(StorageError, match="something else: name another trace file"):
        await deliver_all(SqliteTraceConsumer(state), Run().whole())
    await deliver_all(SqliteTraceConsumer(trace), Run().whole())
    async with aclosing(Database(trace)) as database:
        with pytest.raises(StorageError, match="something else: name another state file"):
            await database.read(lambda transaction: None)


async def test_damaged_row_is_told(tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    await deliver_all(SqliteTraceConsumer(path), Run().whole())
    connection = sqlite3.connect(path)
    connection.execute("UPDATE rows SET event = '{}' WHERE sequence = 1")
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="row 1 of run 1"):
        await rows(path)
