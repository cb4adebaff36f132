"""Following: events, polling, the last lines, and what is told."""

import errno
import select
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.sources.contents import Content
from aeolus_sandbox.guest.logs.sources.paths import Located
from tests.unit.logs.writers import Following, Log


def wait_for_event(tail: Following) -> None:
    fd = tail.files.changes_fd()
    assert fd is not None
    assert select.select([fd], [], [], 20)[0]


def test_new_content_is_there_at_once_after_an_event(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("one")
    with Following(tmp_path, "/logs/app.log", uses_events=True) as tail:
        assert tail.read() == ["one"]
        for number in range(50):
            log.write(f"line {number}")
            wait_for_event(tail)
            assert tail.look() == [f"line {number}"]


def test_events_tell_of_rotation_new_files_and_new_folders(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("one")
    with Following(tmp_path, patterns=["/logs/**/*.log"], uses_events=True) as tail:
        assert tail.read() == ["one"]
        log.rename()
        log.write("two")
        wait_for_event(tail)
        assert tail.look() == ["two"]
        Log(tmp_path, "/logs/new/deep/x.log").write("three")
        wait_for_event(tail)
        assert tail.look() == ["three"]
        Log(tmp_path, "/logs/new/deep/x.log").write("four")
        wait_for_event(tail)
        assert tail.look() == ["four"]


def test_event_costs_no_look_at_all_files(tmp_path: Path) -> None:
    logs = [Log(tmp_path, f"/logs/{number}.log") for number in range(300)]
    for log in logs:
        log.write("old")
    with Following(tmp_path, patterns=["/logs/*.log"], uses_events=True) as tail:
        assert len(tail.read()) == 300
        looked: list[str] = []
        look = tail.files._catalog.host.look

        def noted(path: str) -> Located:
            looked.append(path)
            return look(path)

        tail.files._catalog.host.look = noted  # type: ignore[method-assign]
        logs[7].write("new")
        wait_for_event(tail)
        assert tail.look() == ["new"]
        assert looked == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
def test_polling_when_the_kernel_gives_no_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    library: Any = types.ModuleType("inotify_simple")
    import inotify_simple

    class Full(inotify_simple.INotify):  # type: ignore[misc]
        def add_watch(self, path: str, mask: int) -> int:
            raise OSError(number, "no more")

    library.INotify, library.flags = Full, inotify_simple.flags
    monkeypatch.setitem(sys.modules, "inotify_simple", library)
    check_polling(tmp_path)


def test_polling_when_the_library_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inotify_simple", None)
    check_polling(tmp_path)


def check_polling(root: Path) -> None:
    log = Log(root)
    log.write("one")
    with Following(root, "/logs/app.log", uses_events=True) as tail:
        assert tail.read() == ["one"]
        assert tail.files.changes_fd() is None
        log.write("two")
        assert tail.wait(1) == ["two"]
        assert tail.kinds() == ["polling"]


def test_change_without_an_event_is_seen_by_the_look(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("one")
    with Following(tmp_path, "/logs/app.log", uses_events=True) as tail:
        tail.read()
        log.write("two")
        assert tail.files._watch is not None
        tail.files._watch.read()  # the event is lost
        assert tail.look() == ["two"]


def test_files_are_read_in_turns(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        Log(tmp_path, f"/logs/{name}.log").write(*(f"{name} {number}" for number in range(1000)))
    with Following(tmp_path, patterns=["/logs/*.log"], follow=False) as tail:
        tail.read(max_bytes=1000)
        assert [block.path for block in tail.blocks[:6]] == [f"/logs/{name}.log" for name in "abcabc"]


def test_same_file_under_two_names_is_read_once(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("one")
    (tmp_path / "logs/hard.log").hardlink_to(log.path)
    (tmp_path / "logs/soft.log").symlink_to("app.log")
    with Following(tmp_path, "/logs/soft.log", "/logs/app.log", "/logs/hard.log") as tail:
        assert tail.read() == ["one"]
        log.write("two")
        assert tail.look() == ["two"]
        assert tail.files.files == ["/logs/soft.log"]


@given(
    lines=st.lists(st.text("ab", max_size=5), max_size=12),
    ends=st.booleans(),
    wanted=st.integers(0, 14),
    packed=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_last_lines(
    lines: list[str], ends: bool, wanted: int, packed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import gzip

    log = Log(tmp_path_factory.mktemp("root"))
    data = "\n".join(lines).encode() + (b"\n" if ends and lines else b"")
    log.append(gzip.compress(data) if packed else data)
    expected = data.decode().split("\n")
    expected = expected[:-1] if expected[-1] == "" else expected
    with Following(log.path.parent.parent, "/logs/app.log", follow=False, tail_lines=wanted) as tail:
        assert tail.read() == (expected[-wanted:] if wanted else [])


def test_last_lines_of_a_long_file(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(*(f"{number:>300}" for number in range(2000)))
    with Following(tmp_path, "/logs/app.log", tail_lines=700) as tail:
        assert [int(line) for line in tail.read()] == list(range(1300, 2000))
        assert tail.files.bytes_read == 700 * 301


def test_no_last_lines_means_what_comes(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append(b"old\nhalf")
    with Following(tmp_path, "/logs/app.log", tail_lines=0) as tail:
        assert tail.read() == []
        log.append(b" new\n")
        assert tail.look() == ["half new"]


def test_nothing_stays_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    Log(tmp_path).write("one")
    with Following(tmp_path, patterns=["/logs/*"], uses_events=True) as tail:
        tail.read()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_folder_that_is_replaced_is_watched_again(tmp_path: Path) -> None:
    log = Log(tmp_path, "/logs/app/x.log")
    log.write("one")
    with Following(tmp_path, "/logs/app/x.log", uses_events=True) as tail:
        assert tail.read() == ["one"]
        log.path.parent.rename(tmp_path / "logs/old")
        log = Log(tmp_path, "/logs/app/x.log")
        log.write("two")
        assert tail.wait(2) == ["two"]
        log.write("three")
        wait_for_event(tail)
        assert tail.look() == ["three"]


def test_lines_written_after_a_file_was_found_are_none_of_its_last_ones(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    empty, full = folder / "empty.log", folder / "full.log"
    empty.touch()
    full.write_text("old 1\nold 2\nhalf")
    with Following(tmp_path, "/logs/empty.log", "/logs/full.log", tail_lines=0) as tail:
        for file in (empty, full):
            with file.open("a") as log:
                log.write(" new\n")
        assert sorted(tail.look()) == [" new", "half new"]


def test_what_is_written_to_a_renamed_file_comes_before_its_successor(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("a1")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["a1"]
        old = log.rename()
        late = Log(tmp_path, "/logs/app.log.1")
        assert late.path == old
        late.write("a2")
        log.append(b"")  # logrotate's `create`
        tail.files.note_changes()
        assert tail.read(blocks=1) == ["a2"]
        late.write("a3")  # its writer has not reopened it yet
        log.write("b1")  # now it has
        assert tail.read() == ["a3", "b1"]
        late.write("a4")
        log.write("b2")
        assert tail.look() == ["a4", "b2"]


def test_what_is_written_to_a_renamed_file_while_its_successor_is_read_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of the old file is written before the first of the new one, and after the look at the old one."""
    log = Log(tmp_path)
    log.write("a1")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["a1"]
        log.rename()
        late = Log(tmp_path, "/logs/app.log.1")
        log.append(b"")
        assert tail.look() == []
        log.write("b1")
        read, last_lines = Content.read, ["a2"]

        def write_then_read(content: Content, fd: int, max_bytes: int) -> bytes:
            if last_lines:
                late.write(last_lines.pop())
            return read(content, fd, max_bytes)

        monkeypatch.setattr(Content, "read", write_then_read)
        tail.files.note_changes()
        assert tail.read() == ["a2", "b1"]
