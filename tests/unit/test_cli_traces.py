"""`aeolus traces`: both kinds of trace are listed, shown and exported alike, and nothing in them is obeyed."""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aeolus_sandbox.agent.agent import Agent
from aeolus_sandbox.cli import app
from aeolus_sandbox.consumers import MultiConsumer, SqliteTraceConsumer, TraceConsumer
from aeolus_sandbox.errors import ModelError
from aeolus_sandbox.testing.scripted_model import Call, ScriptedModel
from tests.unit.agent.agent_runs import Says

runner = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with the traces of two sessions, the later one failed, in both kinds."""

    async def trace() -> None:
        model = ScriptedModel(
            [
                ["Let me look.\x1b]0;title\x07", Call("says", {"lines": ["one\n"]})],
                "Done.",
                "Hm.",
                ModelError("no"),
            ]
        )
        agent = Agent(model=model, tools=[Says()], name="tracer")
        consumer = (
            MultiConsumer()
            .add(TraceConsumer(tmp_path / "jsonl"))
            .add(SqliteTraceConsumer(tmp_path / "traces.db"))
        )
        first = await agent.run_streaming("Begin.", consumer)
        await agent.run_streaming_with_messages([*first.messages, *agent.initial_messages("And?")], consumer)
        with pytest.raises(ModelError):
            await agent.run_streaming("Fail.", consumer)

    asyncio.run(trace())
    return tmp_path


def traces(*arguments: object, code: int = 0) -> Result:
    done = runner.invoke(app, ["traces", *map(str, arguments)], env={"NO_COLOR": "1"})
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(params=["jsonl", "traces.db"])
def source(folder: Path, request: pytest.FixtureRequest) -> Path:
    return folder / str(request.param)


def sessions(source: Path) -> list[str]:
    return [line.split("\t")[0] for line in traces("list", source).stdout.splitlines()]


def test_sessions_are_listed_latest_first(source: Path) -> None:
    rows = [line.split("\t") for line in traces("list", source).stdout.splitlines()]
    assert [row[1] for row in rows] == ["error", "done", "done"]
    assert {(row[4], row[5]) for row in rows} == {("scripted/model", "tracer")}
    records = [json.loads(line) for line in traces("list", source, "--json").stdout.splitlines()]
    assert [record["session_id"] for record in records] == [row[0] for row in rows]
    limited = traces("list", source, "--limit", 1)
    assert len(limited.stdout.splitlines()) == 1
    assert "more than these 1" in limited.stderr


def test_a_session_is_shown_as_its_console_would_and_nothing_is_obeyed(source: Path) -> None:
    shown = traces("show", source, sessions(source)[2]).stdout
    assert "Let me look." in shown
    assert "one" in shown
    assert "Done." in shown
    assert "\x1b" not in shown


def test_the_latest_session_is_shown_by_default(source: Path) -> None:
    assert "no" in traces("show", source).stdout


def test_every_event_is_exported(source: Path) -> None:
    lines = [json.loads(line) for line in traces("export", source, sessions(source)[2]).stdout.splitlines()]
    assert [line["event"]["type"] for line in lines] == [
        *("session_started", "content", "usage_update", "tool_call_started", "tool_output"),
        *("tool_call_completed", "turn_completed", "content", "usage_update", "turn_completed", "done"),
    ]
    assert all(line["time"] and line["elapsed_ms"] >= 0 for line in lines)


def test_what_is_exported_can_be_shown_again(source: Path, tmp_path: Path) -> None:
    exported = tmp_path / "one.jsonl"
    exported.write_text(traces("export", source, sessions(source)[2]).stdout, "utf-8")
    assert "Let me look." in traces("show", exported).stdout
    assert len(sessions(exported)) == 1


def test_a_session_that_is_not_there_is_not_found(source: Path) -> None:
    assert "no trace of the session 'nobody'" in traces("show", source, "nobody", code=1).stderr
    assert traces("export", source, "nobody", code=1).stdout == ""


def test_where_nothing_is_nothing_is_found(tmp_path: Path) -> None:
    assert "there is no trace" in traces("list", tmp_path).stderr
    traces("show", tmp_path, code=1)
    traces("list", tmp_path / "nowhere", code=2)


def test_lines_that_are_damaged_are_passed_over(folder: Path) -> None:
    file = min((folder / "jsonl").iterdir())
    file.write_bytes(b"{\n\xff\xfe\nnull\n[]\n" + file.read_bytes() + b'{"event": ')
    assert "Done." in traces("show", file).stdout


def test_another_database_is_refused(tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE x (y)")
    traces("list", tmp_path / "other.db", code=125)
