"""`aeolus tail` without an engine: what it grants, what it shows, and what it refuses before anything starts."""

import asyncio
import io
import json
import os
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.capabilities import Grants, ReadLogs
from aeolus_sandbox.cli import app
from aeolus_sandbox.cli.log_views import LogJsonLines, LogLines, ViewQueue, stdout_watched
from aeolus_sandbox.cli.tail import CursorFile, Reading, _moment
from aeolus_sandbox.cli.tail_grants import access_to, is_pattern
from aeolus_sandbox.errors import LogPathRefused
from aeolus_sandbox.exit_status import ExitStatus
from aeolus_sandbox.tools.log_tailer import (
    LogChunk,
    LogCursor,
    LogLevel,
    LogNotice,
    LogNoticeKind,
    LogPosition,
    LogResult,
    LogTailerInput,
)
from aeolus_sandbox.tools.log_tailer.paths import find_paths

LIMIT_S = 30.0
HOSTILE = "ok\x1b[2J\x1b]0;owned\x07\x1b]52;c;cm0=\x07 \x9b31mred \u202egnp.exe\rfake"
HARMLESS = "ok␛[2J␛]0;owned␇␛]52;c;cm0=␇ <U+009B>31mred <U+202E>gnp.exe␍fake"
RESULT = LogResult(
    status=ExitStatus(reason="exited", code=0),
    lines_read=3,
    lines_matched=2,
    lines_dropped=1,
    lines_unparsed=0,
    bytes_read=9,
    files=("/a.log",),
)


class Screen(io.TextIOWrapper):
    """A stdout that is a terminal, or not."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def shown(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


def terminal(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return replaced(monkeypatch, is_terminal=True)


def replaced(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> Screen:
    made = Screen(is_terminal=is_terminal)
    monkeypatch.setattr("sys.stdout", made)
    return made


def line(text: str, *, file: str = "/a.log", level: LogLevel | None = None, sequence: int = 1) -> LogChunk:
    return LogChunk(raw=text, message=text, file=file, level=level, sequence=sequence)


def notice(text: str, kind: LogNoticeKind = LogNoticeKind.ROTATED) -> LogChunk:
    return LogChunk(raw="", message=text, file="/a.log", sequence=1, notice=LogNotice(kind=kind, text=text))


# What it shows.


def test_levels_have_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    view = LogLines(headlines=False)
    view.chunks([line("bad", level=LogLevel.ERROR), line("fine", level=LogLevel.INFO), line("unknown")])
    assert screen.shown == "\x1b[31mbad\x1b[0m\nfine\nunknown\n"


def test_there_are_no_colours_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    LogLines(headlines=False).chunks([line("bad", level=LogLevel.ERROR)])
    assert screen.shown == "bad\n"


def test_nothing_of_a_line_or_a_name_commands_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = terminal(monkeypatch)
    view = LogLines(headlines=True)
    view.chunks([line(HOSTILE, file=f"/{HOSTILE}\n==> /fake <=="), notice(f"{HOSTILE}\nfake")])
    view.result(RESULT.model_copy(update={"files": (HOSTILE,)}))
    assert screen.shown == f"==> /{HARMLESS}␊==> /fake <== <==\n{HARMLESS}\n"
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"aeolus: {HARMLESS}␊fake"
    assert HARMLESS in said[1]


def test_a_line_that_is_cut_within_a_control_sequence_is_harmless_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = terminal(monkeypatch)
    LogLines(headlines=False).chunks([line("a\x1b"), line("]52;c;cm0=\x07b"), line("\x1b[")])
    assert screen.shown == "a␛\n]52;c;cm0=␇b\n␛[\n"


def test_an_event_of_several_lines_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    LogLines(headlines=False).chunks([line("ERROR\n\tat x", level=LogLevel.CRITICAL)])
    assert screen.shown == "\x1b[1;31mERROR\n\tat x\x1b[0m\n"


def test_a_pipe_gets_the_exact_text_and_headlines_as_of_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = replaced(monkeypatch, is_terminal=False)
    view = LogLines(headlines=True)
    view.chunks([line(HOSTILE), line("two", level=LogLevel.ERROR), line("b1", file="/b.log")])
    view.chunks([line("b2", file="/b.log"), line("a3")])
    assert pipe.shown == (f"==> /a.log <==\n{HOSTILE}\ntwo\n\n==> /b.log <==\nb1\nb2\n\n==> /a.log <==\na3\n")


def test_json_is_an_object_a_line_of_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = replaced(monkeypatch, is_terminal=False)
    view = LogJsonLines()
    view.chunks([line(HOSTILE, level=LogLevel.ERROR), notice("gone")])
    view.result(RESULT)
    assert pipe.shown.isascii()
    first, second, last = map(json.loads, pipe.shown.splitlines())
    assert (first["type"], first["raw"], first["level"]) == ("chunk", HOSTILE, "error")
    assert second["notice"]["kind"] == "rotated"
    assert (last["type"], last["lines_matched"], last["cursor"]) == ("result", 2, {"positions": []})


# On its way to the screen.


class Recorder:
    """A view that a test lets go on, or breaks."""

    def __init__(self) -> None:
        self.seen: list[LogChunk] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.has_shown = threading.Event()
        self.error: Exception | None = None

    def chunks(self, chunks: Sequence[LogChunk]) -> None:
        assert self.may_go_on.wait(LIMIT_S)
        if self.error is not None:
            raise self.error
        self.seen += chunks
        self.has_shown.set()

    def result(self, result: LogResult) -> None:
        raise AssertionError


class Session:
    """Gives its chunks, and then nothing more until it is cancelled."""

    def __init__(self, chunks: Sequence[LogChunk], *, ends: bool = False) -> None:
        self._chunks = chunks
        self._ends = ends

    async def __aiter__(self) -> AsyncIterator[LogChunk]:
        for chunk in self._chunks:
            yield chunk
        if not self._ends:
            await asyncio.Event().wait()


def reading(view: Any, cursor: CursorFile | None = None) -> Reading:
    return Reading(LogTailerInput(path="/a.log"), Grants.of(ReadLogs(roots=["/logs"])), view, cursor)


async def show(call: Reading, session: Session) -> None:
    held: Any = session
    async with asyncio.timeout(LIMIT_S):
        await call._show(held)


async def test_every_line_is_shown_once_and_in_order_however_slow_the_screen_is() -> None:
    view = Recorder()
    view.may_go_on.clear()
    chunks = [line(str(n), sequence=n + 1) for n in range(20_000)]
    async with asyncio.TaskGroup() as group:
        group.create_task(show(reading(view), Session(chunks, ends=True)))
        await asyncio.sleep(0)
        view.may_go_on.set()
    assert view.seen == chunks


async def test_lines_that_were_read_are_shown_also_when_it_is_cancelled() -> None:
    view = Recorder()
    chunks = [line(str(n), sequence=n + 1) for n in range(100)]
    async with asyncio.TaskGroup() as group:
        showing = group.create_task(show(reading(view), Session(chunks)))
        assert await asyncio.to_thread(view.has_shown.wait, LIMIT_S)
        showing.cancel()
    assert showing.cancelled()
    assert view.seen == chunks


async def test_it_ends_when_nobody_reads_although_no_line_comes() -> None:
    view = Recorder()
    view.error = BrokenPipeError()
    with pytest.raises(BrokenPipeError):
        await show(reading(view), Session([line("one")]))


async def test_it_ends_when_its_pipe_is_closed_although_no_line_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        tasks = BackgroundTasks()
        showing = tasks.start(show(reading(Recorder()), Session([line("one")])), name="show", awaited=True)
        await asyncio.sleep(0)
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            await showing


async def test_a_file_has_no_reader_that_could_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr("sys.stdout", file)
        with stdout_watched(lambda: pytest.fail("it was called")):
            await asyncio.sleep(0)


async def test_a_queue_that_nobody_empties_makes_its_reader_wait() -> None:
    view = Recorder()
    queue = ViewQueue(view)

    async def fill() -> None:
        for n in range(6000):
            await queue.put(line(str(n)))

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(fill(), 0.2)
    queue.end()
    await queue.run()
    assert 1000 < len(view.seen) < 6000


@pytest.mark.parametrize(
    ("kind", "fails"),
    [(LogNoticeKind.UNREADABLE, True), (LogNoticeKind.REFUSED, True), (LogNoticeKind.ROTATED, False)],
)
async def test_it_knows_that_something_could_not_be_read(kind: LogNoticeKind, fails: bool) -> None:
    call = reading(Recorder())
    await show(call, Session([notice("x", kind)], ends=True))
    assert call.has_failed is fails


# The cursor.


def test_a_cursor_is_kept_in_a_file(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "cursor")
    assert file.read() is None
    cursor = LogCursor(positions=(LogPosition(path="/a.log", device=1, inode=2, offset=3),))
    file.write(LogCursor())
    file.write(cursor)
    assert file.read() == cursor
    assert [path.name for path in tmp_path.iterdir()] == ["cursor"]


@pytest.mark.parametrize("content", [b"nonsense", b"\xff\xfe", b'{"positions":[{"path":1}]}', b""])
def test_what_is_no_cursor_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cursor").write_bytes(content)
    with pytest.raises(typer.BadParameter, match="no cursor of ours"):
        CursorFile(tmp_path / "cursor").read()


# What it refuses.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--grep", "("], "at position 1"),
        (["--exclude", "a(?=b)"], "at position 1"),
        (["--timezone", "Nowhere/None"], "no time zone"),
        (["--since", "soon"], "--since"),
        (["--until", "2024-13-01"], "--until"),
        (["--field", "status"], "NAME=VALUE"),
        (["--field", "=404"], "NAME=VALUE"),
        (["--level", "loud"], "--level"),
        (["--format", "xml"], "--format"),
        (["-n", "-1"], "--lines"),
        (["--timeout", "0"], "--timeout"),
        (["--cursor", "/nowhere/at/all"], "no folder"),
        (["--cursor", "/tmp"], "directory"),
    ],
)
def test_wrong_usage_is_told_before_anything_starts(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["tail", "/a.log", *arguments], env={"COLUMNS": "300", "NO_COLOR": "1"})
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_times_are_ages_or_local_times() -> None:
    assert _moment(None, "--since") is None
    assert _moment("2h", "--since") == timedelta(hours=2)
    assert _moment("2024-03-10T09:15:00+05:30", "--since") == datetime(2024, 3, 10, 3, 45, tzinfo=UTC)
    local = _moment("2024-03-10T09:15", "--since")
    assert isinstance(local, datetime)
    assert local.replace(tzinfo=None) == datetime(2024, 3, 10, 9, 15)  # noqa: DTZ001 - local, as it was typed
    assert local.tzinfo is not None


# What it grants.


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "logs"
    folder.mkdir()
    (folder / "a.log").write_text("one\n")
    return folder


def test_who_names_a_file_grants_its_folder(logs: Path) -> None:
    assert access_to([str(logs / "a.log")], None).roots == (str(logs),)
    assert access_to([str(logs / "none.log"), str(logs / "a.log")], None).roots == (str(logs),)


def test_a_pattern_grants_the_folder_that_all_matches_are_below(logs: Path) -> None:
    assert access_to([str(logs / "*/x-[0-9].log")], None).roots == (str(logs),)


def test_a_name_with_odd_characters_is_no_pattern_where_such_a_file_is(logs: Path) -> None:
    odd = logs / "a[1].log"
    assert is_pattern(str(odd))
    odd.touch()
    assert not is_pattern(str(odd))
    assert not is_pattern(str(logs / "a.log"))


@pytest.mark.parametrize("name", ["web.log", "*.log"])
def test_all_folders_on_the_way_of_links_are_granted_as_the_tailer_needs_them(logs: Path, name: str) -> None:
    root = logs.parent
    (root / "pods" / "v2").mkdir(parents=True)
    (root / "hop").mkdir()
    (root / "pods" / "current").symlink_to("v2")
    (root / "pods" / "v2" / "0.log").write_text("x\n")
    (root / "hop" / "next").symlink_to("../pods/current/0.log")
    (logs / "web.log").symlink_to(root / "hop" / "next")
    access = access_to([str(logs / name)], None)
    assert set(access.roots) == {str(root / each) for each in ("logs", "hop", "pods", "pods/v2")}
    found = find_paths([str(logs / name)], access, is_glob=None, follow=False)
    found.folders.close()
    assert str(root / "pods") in found.folders.paths


def test_links_that_lead_nowhere_or_round_are_no_trouble(logs: Path) -> None:
    (logs / "round").symlink_to("round")
    (logs / "dangling").symlink_to(logs.parent / "there" / "x.log")
    assert access_to([str(logs / "round")], None).roots == (str(logs),)
    assert access_to([str(logs / "dangling")], None).roots == (str(logs), str(logs.parent / "there"))


def test_the_root_folder_is_not_granted() -> None:
    with pytest.raises(LogPathRefused, match="root folder"):
        access_to(["/nothing-here.log"], None)


def test_groups_are_those_of_the_files_unless_they_are_named(logs: Path) -> None:
    path = str(logs / "a.log")
    group = os.getgid() or 4
    if os.getgid() == 0:
        os.chown(path, 0, group)
    Path(path).chmod(0o640)
    assert access_to([path], None).groups == (group,)
    assert access_to([path], ["adm"]).groups == ("adm",)
    Path(path).chmod(0o644)
    assert access_to([path], None).groups == ()
