"""Conversations that are kept: what is loaded is what was said, whoever else writes, and whatever the disk does."""

import asyncio
import json
import multiprocessing
import sqlite3
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.agent.agent import Agent
from aeolus_sandbox.agent.transcript import INTERRUPTED
from aeolus_sandbox.errors import (
    ConfigurationError,
    ConversationConflict,
    ConversationNotFound,
    StorageError,
    StorageFull,
)
from aeolus_sandbox.events import AggregatedUsage
from aeolus_sandbox.model.chat import (
    ChatMessage,
    ContentBlock,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.history import History
from aeolus_sandbox.testing.scripted_model import Call, ScriptedModel
from tests.unit.agent.agent_runs import Recorder, Says, told

LIMIT_S = 60
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
USED = AggregatedUsage(requests=1, input_tokens=10, output_tokens=5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "history.db"


@pytest.fixture
async def history(path: Path) -> AsyncIterator[History]:
    async with asyncio.timeout(LIMIT_S), History(path, now=lambda: NOON) as opened:
        yield opened


def hello(text: str = "Hello.") -> ChatMessage:
    return ChatMessage.user(text)


async def test_what_is_loaded_is_what_was_appended(history: History) -> None:
    conversation_id = await history.create("helper", "anthropic/claude-haiku-4-5")
    transcript = history.transcript(conversation_id, at=0)
    await transcript.append([hello()], None)
    await transcript.append([ChatMessage.assistant("Hi."), hello("And?")], USED)
    await transcript.append([], USED)
    found = await history.load(conversation_id)
    assert [message.text for message in found.messages] == ["Hello.", "Hi.", "And?"]
    assert (found.id, found.agent, found.model) == (conversation_id, "helper", "anthropic/claude-haiku-4-5")
    assert found.usage == USED.plus(USED)
    assert (found.created_at, found.updated_at) == (NOON, NOON)


async def test_a_new_conversation_is_empty(history: History) -> None:
    found = await history.load(await history.create("helper", "m/m"))
    assert (found.messages, found.usage) == ((), AggregatedUsage())


async def test_the_file_is_for_its_user_alone(history: History, path: Path) -> None:
    await history.create("helper", "m/m")
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_the_file_is_beside_the_state_file_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEOLUS_STATE", str(tmp_path / "state.db"))
    async with History() as history:
        await history.create("helper", "m/m")
    assert (tmp_path / "history.db").exists()


any_text = st.text(st.characters() | st.sampled_from("\0\ud800\udfff\x1b"), max_size=30)
any_json = st.dictionaries(
    any_text, st.none() | st.booleans() | st.integers() | any_text | st.lists(any_text)
)
any_block: st.SearchStrategy[ContentBlock] = st.one_of(
    st.builds(TextBlock, text=any_text),
    st.builds(ThinkingBlock, thinking=any_text, signature=any_text),
    st.builds(RedactedThinkingBlock, data=any_text),
    st.builds(ToolUseBlock, id=any_text, name=any_text, input=any_json, malformed=st.none() | any_text),
    st.builds(
        ToolResultBlock,
        tool_use_id=any_text,
        content=st.lists(
            st.builds(TextBlock, text=any_text) | st.builds(ImageBlock, media_type=any_text, data=any_text)
        ).map(tuple),
        is_error=st.booleans(),
    ),
)
any_message = st.builds(
    ChatMessage,
    role=st.sampled_from(["user", "assistant"]),
    content=st.lists(any_block, max_size=4).map(tuple),
)


@given(messages=st.lists(any_message, max_size=4), agent=any_text)
@settings(deadline=None, max_examples=40)
def test_every_message_comes_back_as_it_was(messages: list[ChatMessage], agent: str) -> None:
    async def check(folder: str) -> None:
        async with History(Path(folder) / "history.db") as history:
            conversation_id = await history.create(agent, "m/m")
            await history.transcript(conversation_id, at=0).append(messages, None)
            assert list((await history.load(conversation_id)).messages) == messages

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(folder))


# Who else writes.


async def test_of_two_who_go_on_from_the_same_place_one_gets_a_conflict(history: History, path: Path) -> None:
    conversation_id = await history.create("helper", "m/m")
    mine = history.transcript(conversation_id, at=0)
    async with History(path) as other:
        await other.transcript(conversation_id, at=0).append([hello("theirs")], None)
    with pytest.raises(ConversationConflict, match="somebody else has gone on"):
        await mine.append([hello("mine")], USED)
    found = await history.load(conversation_id)
    assert [message.text for message in found.messages] == ["theirs"]
    assert found.usage == AggregatedUsage()


async def test_a_writer_that_has_missed_messages_gets_a_conflict(history: History) -> None:
    conversation_id = await history.create("helper", "m/m")
    with pytest.raises(ConversationConflict):
        await history.transcript(conversation_id, at=3).append([hello()], None)


def _write_conversations(path: str, count: int) -> None:
    async def write() -> None:
        async with History(Path(path)) as history:
            for number in range(count):
                conversation_id = await history.create("writer", "m/m")
                transcript = history.transcript(conversation_id, at=0)
                for turn in range(4):
                    await transcript.append([hello(f"{number}-{turn}")], USED)

    asyncio.run(write())


async def test_several_processes_write_at_once_and_nothing_is_lost(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write_conversations, args=(str(path), 5)) for _ in range(4)]
    for process in processes:
        process.start()
    try:
        for process in processes:
            await asyncio.to_thread(process.join, LIMIT_S)
        assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    finally:
        for process in processes:
            process.kill()
    async with History(path) as history:
        found = await history.list(limit=1000)
        assert len(found) == 20
        for each in found:
            assert each.message_count == 4
            assert each.usage.requests == 4
            texts = [message.text for message in (await history.load(each.id)).messages]
            assert [text.split("-")[1] for text in texts] == ["0", "1", "2", "3"]


# The bound.


async def test_the_conversation_that_was_not_written_to_for_longest_makes_room(path: Path) -> None:
    moments = iter(
        NOON - timedelta(hours=n) for n in range(100)
    )  # a clock that goes backwards changes nothing
    async with History(path, max_conversations=3, now=lambda: next(moments)) as history:
        first, second, third = [await history.create("helper", "m/m") for _ in range(3)]
        await history.transcript(first, at=0).append([hello()], None)
        fourth = await history.create("helper", "m/m")
        assert [each.id for each in await history.list()] == [fourth, first, third]
        with pytest.raises(ConversationNotFound):
            await history.load(second)


async def test_what_is_forgotten_leaves_no_message_behind(path: Path) -> None:
    async with History(path, max_conversations=1) as history:
        for _ in range(3):
            conversation_id = await history.create("helper", "m/m")
            await history.transcript(conversation_id, at=0).append([hello("secret words")], None)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM messages").fetchone() == (1,)


def test_a_bound_below_one_is_refused(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="max_conversations=0"):
        History(path, max_conversations=0)


async def test_listing_is_bounded(history: History) -> None:
    ids = [await history.create("helper", "m/m") for _ in range(5)]
    assert [each.id for each in await history.list(2)] == ids[:2:-1]


async def test_a_deleted_conversation_is_gone_also_for_who_goes_on_with_it(history: History) -> None:
    conversation_id = await history.create("helper", "m/m")
    transcript = history.transcript(conversation_id, at=0)
    await transcript.append([hello()], None)
    await history.delete(conversation_id)
    for attempt in (
        history.load(conversation_id),
        history.delete(conversation_id),
        transcript.append([hello()], None),
        history.load("no such \ud800"),
    ):
        with pytest.raises(ConversationNotFound):
            await attempt


# What the disk does.


async def test_a_full_disk_leaves_what_was_there_and_nothing_half_written(history: History) -> None:
    conversation_id = await history.create("helper", "m/m")
    transcript = history.transcript(conversation_id, at=0)
    await transcript.append([hello("before")], USED)
    await _set_room(history, pages=2)
    big = [hello("x" * 3000) for _ in range(50)]
    with pytest.raises(StorageFull):
        await transcript.append(big, USED)
    found = await history.load(conversation_id)
    assert [message.text for message in found.messages] == ["before"]
    assert found.usage == USED
    await _set_room(history, pages=10_000)
    await transcript.append(big, USED)
    assert len((await history.load(conversation_id)).messages) == 51


async def _set_room(history: History, *, pages: int) -> None:
    """Let the file grow by so many pages (https://sqlite.org/pragma.html#pragma_max_page_count)."""
    count = await history._database.read(lambda transaction: transaction.row("PRAGMA page_count"))
    assert count
    most = count["page_count"] + pages
    await history._database.read(lambda transaction: transaction.rows(f"PRAGMA max_page_count = {most}"))


async def test_an_agent_whose_step_cannot_be_recorded_does_not_run_it(history: History) -> None:
    tool = Says()
    long = Call("says", {"lines": ["x" * 200_000]})
    agent = Agent(model=ScriptedModel([long]), tools=[tool], history=history)
    await history.create("helper", "m/m")
    await _set_room(history, pages=3)
    recorder = Recorder()
    with pytest.raises(StorageFull):
        await agent.run_streaming("Begin.", recorder)
    assert tool.inputs == []
    (kept, _) = await history.list()
    assert [message.text for message in (await history.load(kept.id)).messages] == ["Begin."]


async def test_a_state_file_is_no_history_file(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    await database.read(lambda transaction: transaction.rows("SELECT 1"))
    await database.aclose()
    async with History(tmp_path / "state.db") as history:
        with pytest.raises(StorageError, match="kept for something else: name another history file"):
            await history.create("helper", "m/m")


@pytest.mark.parametrize("damage", ["{", "[]", json.dumps({"role": "nobody", "content": []}), "\x00"])
async def test_a_damaged_message_is_an_error_that_says_so(history: History, path: Path, damage: str) -> None:
    conversation_id = await history.create("helper", "m/m")
    await history.transcript(conversation_id, at=0).append([hello()], None)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE messages SET message = ?", (damage,))
    with pytest.raises(StorageError, match="damaged"):
        await history.load(conversation_id)


# An agent with a history.


def agent(history: History | None, *steps: Any) -> Agent:
    return Agent(model=ScriptedModel(steps), tools=[Says()], history=history, name="helper")


async def test_an_agent_goes_on_with_a_conversation(history: History) -> None:
    first = await agent(history, "one").run_streaming("First?", Recorder())
    recorder = Recorder()
    second = await agent(history, "two").continue_session(first.session_id, "Second?", recorder)
    assert second.session_id == first.session_id == recorder.events[0].session_id
    assert [message.text for message in second.messages] == ["First?", "one", "Second?", "two"]
    assert second.usage.requests == 1
    kept = await history.load(first.session_id)
    assert list(kept.messages) == second.messages
    assert (kept.agent, kept.model, kept.usage.requests) == ("helper", "scripted/model", 2)


async def test_a_conversation_that_a_crash_has_torn_goes_on(history: History) -> None:
    conversation_id = await history.create("helper", "m/m")
    calls = (ToolUseBlock(id="A", name="says", input={}), ToolUseBlock(id="B", name="says", input={}))
    stored = ToolResultBlock(tool_use_id="A", content=(TextBlock(text="stored"),))
    transcript = history.transcript(conversation_id, at=0)
    await transcript.append(
        [
            hello(),
            ChatMessage(role="assistant", content=calls),
            ChatMessage(role="user", content=(stored,)),
        ],
        USED,
    )
    for prompt in ("Go on.", "And on."):  # also when the repair is made a second time
        going_on = agent(history, "Fine.")
        model = going_on.settings.model
        assert isinstance(model, ScriptedModel)
        await going_on.continue_session(conversation_id, prompt, Recorder())
        sent = model.requests[0].messages
        assert [block.type for block in sent[2].content] == ["tool_result", "tool_result"]
        assert INTERRUPTED in sent[2].model_dump_json()
        assert told(model) == []


async def test_without_a_history_nothing_can_be_continued() -> None:
    with pytest.raises(ConfigurationError, match="history=History"):
        await agent(None).continue_session("x", "Go on.", Recorder())


async def test_a_conversation_that_is_not_there_cannot_be_continued(history: History) -> None:
    with pytest.raises(ConversationNotFound):
        await agent(history).continue_session("x", "Go on.", Recorder())


async def test_two_who_continue_one_conversation_at_once_do_not_mix(history: History) -> None:
    first = await agent(history, "one").run_streaming("First?", Recorder())
    wait = asyncio.Event()
    slow, model = agent(history, [wait, "slow"]), ScriptedModel([])
    model = slow.settings.model  # type: ignore[assignment]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_caught(slow.continue_session(first.session_id, "Slow?", Recorder())))
        await model.wait_for_requests(1)
        other = await _caught(
            agent(history, "quick").continue_session(first.session_id, "Quick?", Recorder())
        )
        wait.set()
    kept = [message.text for message in (await history.load(first.session_id)).messages]
    assert other is None
    assert isinstance(task.result(), ConversationConflict)
    assert kept == ["First?", "one", "Slow?", "Quick?", "quick"]


async def _caught(work: Any) -> Exception | None:
    try:
        await work
    except ConversationConflict as error:
        return error
    return None
