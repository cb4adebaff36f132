"""`aeolus checkpoints`: what an operator sees of the recorded runs, and what pruning leaves alone."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from aeolus_sandbox.cli import app
from aeolus_sandbox.cli.state import format_age, parse_age
from aeolus_sandbox.sandboxes.owner import Owner
from aeolus_sandbox.storage.checkpoints import Checkpoints
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.records import RunState
from tests.unit.at_terminal import at_terminal

T = TypeVar("T")

runner = CliRunner()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def aeolus(state: Path, *arguments: str) -> Result:
    return runner.invoke(app, ["checkpoints", *arguments, "--state-file", str(state)])


def stored(
    state: Path, question: Callable[[Checkpoints], Awaitable[T]], *, age: timedelta = timedelta(0)
) -> T:
    async def answer() -> T:
        async with aclosing(Database(state)) as database:
            return await question(Checkpoints(database, now=lambda: datetime.now(UTC) - age))

    return asyncio.run(answer())


def record(
    state: Path,
    key: str,
    *,
    end: RunState = "done",
    final: str = '{"exit_code": 0}',
    owner: str = "owner",
    age: timedelta = timedelta(0),
) -> None:
    async def run(checkpoints: Checkpoints) -> None:
        await checkpoints.claim(key, tool_name="terminal", input_hash="hash", owner=owner, may_repeat=True)
        if end == "done":
            await checkpoints.store(key, owner=owner, attempt=1, final=final)
        elif end == "interrupted":
            await checkpoints.give_up(key, owner=owner, attempt=1)

    stored(state, run, age=age)


def keys(result: Result) -> list[str]:
    return [line.split("\t")[0] for line in result.stdout.splitlines()]


# No state file.


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["list"], 0, "no run is recorded"),
        (["list", "--only", "running"], 0, "no run that is running"),
        (["list", "--json"], 0, ""),
        (["show", "key"], 1, "no run is recorded under the key 'key'"),
        (["prune"], 0, "nothing to remove"),
    ],
)
def test_state_file_that_does_not_exist_is_empty_and_is_not_made(
    state: Path, arguments: list[str], code: int, words: str
) -> None:
    result = aeolus(state, *arguments)
    assert result.exit_code == code
    assert words in result.output
    assert list(state.parent.iterdir()) == []


def test_file_that_is_no_state_file_is_one_line_and_exit_code_125(state: Path) -> None:
    state.write_bytes(b"something else " * 100)
    result = aeolus(state, "list")
    assert result.exit_code == 125
    (line,) = result.stderr.splitlines()
    assert str(state) in line


# Listing.


def test_pipe_gets_a_line_of_tab_separated_columns_for_each_newest_first(state: Path) -> None:
    mine = Owner.this_process()
    record(state, "a  key", end="running", owner=str(mine))
    record(state, "b", end="running", owner=str(Owner(mine.host, mine.pid, "1", mine.nonce)))
    record(state, "c")
    rows = [line.split("\t") for line in aeolus(state, "list").stdout.splitlines()]
    assert [row[:4] for row in rows] == [
        ["c", "done", "", "1"], ["b", "running", "gone", "1"], ["a  key", "running", "alive", "1"],
    ]  # fmt: skip
    assert [row[6:] for row in rows] == [["terminal"]] * 3
    assert datetime.fromisoformat(rows[0][4]) <= datetime.fromisoformat(rows[0][5])
    assert rows[1][5] == ""


@pytest.mark.parametrize("only", ["running", "done", "interrupted"])
def test_only_one_state_can_be_listed(state: Path, only: str) -> None:
    record(state, "running", end="running")
    record(state, "done", end="done")
    record(state, "interrupted", end="interrupted")
    assert keys(aeolus(state, "list", "--only", only)) == [only]
    assert len(keys(aeolus(state, "list"))) == 3


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_list_that_is_cut_says_so(state: Path, json_option: list[str]) -> None:
    for number in range(3):
        record(state, str(number))
    cut = aeolus(state, "list", "--limit", "2", *json_option)
    assert len(cut.stdout.splitlines()) == 2
    assert "--limit" in cut.stderr
    whole = aeolus(state, "list", "--limit", "3", *json_option)
    assert len(whole.stdout.splitlines()) == 3
    assert whole.stderr == ""


def test_json_lines_hold_all_but_the_result_which_show_adds(state: Path) -> None:
    record(state, "key", final='{"output": "\\ud800 \\u202e", "exit_code": 3}')
    (line,) = aeolus(state, "list", "--json").stdout.splitlines()
    listed = json.loads(line)
    assert line.isascii()
    assert (listed["key"], listed["state"], listed["process"]) == ("key", "done", None)
    assert "final" not in listed
    assert "result" not in listed
    shown = json.loads(aeolus(state, "show", "key", "--json").stdout)
    assert shown == listed | {"result": {"output": "\ufffd \u202e", "exit_code": 3}}


@pytest.mark.parametrize("cols", [80, 160])
def test_terminal_gets_a_table_with_whole_keys(state: Path, cols: int) -> None:
    key = "0193e4a2-7f10-7b3c-9a55-0123456789ab"
    record(state, key)
    record(state, "k" * 200, end="running")
    code, screen = at_terminal("checkpoints", "list", "--state-file", str(state), cols=cols)
    assert code == 0
    assert key in screen
    assert screen.count("k") - screen.count("key") >= 200
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in screen.splitlines()) <= cols


# Showing.


def test_show_pretty_prints_the_result(state: Path) -> None:
    record(state, "key", final='{"output":"é","exit_code":0}')
    output = aeolus(state, "show", "key").stdout
    assert output.startswith("key         key\n")
    assert output.endswith('\n\n{\n  "output": "é",\n  "exit_code": 0\n}\n')


def test_running_one_is_shown_without_a_result(state: Path) -> None:
    record(state, "key", end="running", owner=str(Owner.this_process()))
    result = aeolus(state, "show", "key")
    assert result.exit_code == 0
    assert "process     alive\n" in result.stdout
    assert "\n\n" not in result.stdout
    assert json.loads(aeolus(state, "show", "key", "--json").stdout)["result"] is None


def test_terminal_obeys_nothing_of_a_result(state: Path) -> None:
    record(state, "key", final='{"output": "\\u001b[2J \\u009b31m \\u202egnp.exe"}')
    code, screen = at_terminal("checkpoints", "show", "key", "--state-file", str(state))
    assert code == 0
    assert not {"\x1b", "\x9b", "\u202e"} & set(screen)
    assert "<U+009B>31m <U+202E>gnp.exe" in screen


@pytest.mark.parametrize("key", ["other", "ke", "%"])
def test_unknown_key_is_said_and_exit_code_1(state: Path, key: str) -> None:
    record(state, "key")
    result = aeolus(state, "show", key)
    assert result.exit_code == 1
    assert repr(key) in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("key", ["a\udcff", "a\x1b[2J"])
def test_key_that_nobody_can_have_given_is_wrong_usage(state: Path, key: str) -> None:
    record(state, "key")
    assert aeolus(state, "show", key).exit_code == 2


# Removing.


def test_prune_removes_what_ended_long_ago_and_never_what_runs(state: Path) -> None:
    long_ago, lately = timedelta(days=40), timedelta(days=20)
    record(state, "runs", end="running", age=long_ago)
    record(state, "old", age=long_ago)
    record(state, "broken off", end="interrupted", age=long_ago)
    record(state, "recent", age=lately)
    dry = aeolus(state, "prune", "--dry-run").stdout
    assert dry == "would remove old\nwould remove broken off\n"
    assert aeolus(state, "prune").stdout == "removed old\nremoved broken off\n"
    assert aeolus(state, "prune").stdout == "nothing to remove\n"
    assert keys(aeolus(state, "list")) == ["recent", "runs"]
    assert aeolus(state, "prune", "--older-than", "480h").stdout == "removed recent\n"
    assert aeolus(state, "prune", "--older-than", "0s").stdout == "nothing to remove\n"


# Ages.


@given(st.integers(0, 99), st.sampled_from("dhms"), st.sampled_from(["{}", " {} "]), st.booleans())
def test_ages_are_read(number: int, unit: str, blanks: str, upper: bool) -> None:
    text = blanks.format(f"{number}{unit.upper() if upper else unit}")
    seconds = {"d": 86400, "h": 3600, "m": 60, "s": 1}[unit]
    assert parse_age(text) == timedelta(seconds=number * seconds)


@given(
    st.one_of(
        st.text(max_size=12),
        st.from_regex(r"\A[-+.0-9]{0,20}[a-z]{0,2}\Z"),
        st.integers(36501, 10**30).map("{}d".format),
    )
)
def test_what_is_no_age_is_refused_and_all_else_can_be_gone_back(text: str) -> None:
    try:
        age = parse_age(text)
    except typer.BadParameter:
        return
    assert re.fullmatch(r"\s*[0-9]+[dhmsDHMS]\s*", text)
    assert datetime.now(UTC) - age < datetime.now(UTC) + timedelta(seconds=1)


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5h", "1w", "1 d", "1d2h", "٣d", "36501d", "1e3s"])
def test_wrong_age_is_wrong_usage_and_removes_nothing(state: Path, text: str) -> None:
    record(state, "key", age=timedelta(days=1000))
    result = aeolus(state, "prune", f"--older-than={text}")
    assert result.exit_code == 2
    assert keys(aeolus(state, "list")) == ["key"]


@given(st.timedeltas(timedelta(0), timedelta(days=36500)))
def test_age_that_is_shown_is_the_largest_whole_unit_and_can_be_typed(age: timedelta) -> None:
    shown = parse_age(format_age(age))
    unit = parse_age(f"1{format_age(age)[-1]}")
    assert shown <= age < shown + unit


def test_what_is_still_to_come_has_no_age() -> None:
    assert format_age(timedelta(hours=-1)) == "0s"


@pytest.mark.parametrize("command", [[], ["list"], ["show"], ["prune"]], ids=lambda value: " ".join(value))
def test_every_command_has_help(command: list[str]) -> None:
    result = runner.invoke(app, ["checkpoints", *command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output
