"""Files through rotation: nothing lost, nothing twice, in order."""

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.lines import LineFlag
from tests.unit.logs.writers import Following, Log, gzip_file, set_age


def test_copytruncate_repeats_and_loses_nothing(tmp_path: Path) -> None:
    log = Log(tmp_path)
    old = [f"old {number:04}" for number in range(1000)]
    log.write(*old)
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == old
        log.append(b"old-part")
        assert tail.look() == []
        log.copy_and_truncate()
        log.write("new 1")
        assert tail.look() == ["old-part", "new 1"]
        assert tail.blocks[-2].flags == {0: LineFlag.INCOMPLETE}
        log.write("new 2")
        assert tail.look() == ["new 2"]
        assert tail.kinds() == ["truncated"]
        assert tail.files.rotations == 1


def test_truncation_is_seen_when_the_file_is_longer_than_before(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("old 1")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["old 1"]
        log.copy_and_truncate()
        log.write("new 1", "new 2", "new 3")
        assert tail.look() == ["new 1", "new 2", "new 3"]


def test_unread_rest_of_a_truncated_file_is_read_from_its_copy(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("first")
    with Following(tmp_path, patterns=["/logs/app.log*"]) as tail:
        assert tail.read() == ["first"]
        log.write("second", "third")
        log.copy_and_truncate()
        log.write("fourth")
        assert tail.look() == ["second", "third", "fourth"]
        assert tail.wait(70) == []
        assert "lost" not in tail.kinds()


def test_unread_rest_of_a_truncated_file_is_read_from_its_compressed_copy(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("first")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["first"]
        log.write("second")
        gzip_file(log.copy_and_truncate())
        log.write("third")
        assert tail.look() == ["second", "third"]


def test_what_is_nowhere_after_a_truncation_is_told(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("first")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["first"]
        log.write("second")
        tail.files.note_changes()
        os.truncate(log.path, 0)
        log.write("third")
        assert tail.look() == ["third"]
        assert [notice.count for notice in tail.told("lost")] == [7]


def test_renamed_files_are_drained_before_their_successors(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("a1")
    with Following(tmp_path, "/logs/app.log") as tail:
        log.write("a2")
        log.rename()
        log.write("b1")
        Log(tmp_path, "/logs/app.log.1").write("a3")
        assert tail.look() == ["a1", "a2", "a3", "b1"]
        assert tail.kinds() == ["rotated"]
        Log(tmp_path, "/logs/app.log.1").write("a4")
        assert tail.look() == ["a4"]


def test_slow_reader_gets_every_line_of_files_that_are_deleted(tmp_path: Path) -> None:
    log = Log(tmp_path)
    got: list[str] = []
    with Following(tmp_path, "/logs/app.log") as tail:
        for batch in range(10):
            log.write(*(f"seq {number}" for number in range(batch * 2000, batch * 2000 + 2000)))
            tail.files.note_changes()
            got += tail.read(blocks=1, max_bytes=4096)
            log.rename()
            tail.files.note_changes()  # a moment without the file
            if batch:
                log.beside(".1").unlink() if batch % 2 else None
        got += tail.wait(5)
        log.beside(".1").unlink(missing_ok=True)
        got += tail.wait(5)
        assert got == [f"seq {number}" for number in range(20_000)]
        links = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        assert not [link for link in links if link.startswith(str(tmp_path)) and "(deleted)" in link]


def test_deleted_and_recreated_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("same")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["same"]
        log.path.unlink()
        assert tail.wait(10) == []
        assert tail.kinds() == ["gone"]
        log.write("same")
        assert tail.look() == ["same"]


def test_links_as_in_kubernetes(tmp_path: Path) -> None:
    log = Log(tmp_path, "/logs/pods/p1/0.log")
    link = tmp_path / "logs/containers/web.log"
    link.parent.mkdir()
    link.symlink_to("../pods/p1/0.log")
    log.write("a1", "a2")
    with Following(tmp_path, "/logs/containers/web.log") as tail:
        assert tail.read() == ["a1", "a2"]
        log.rename()
        log.write("b1")
        assert tail.look() == ["b1"]
        log.write("b2")
        Log(tmp_path, "/logs/pods/p1/1.log").write("c1")
        link.unlink()
        assert tail.look() == ["b2"]
        link.symlink_to("/logs/pods/p1/1.log")
        assert tail.look() == ["c1"]
        assert {block.path for block in tail.blocks} == {"/logs/containers/web.log"}


def test_several_rotations_between_two_looks_are_all_read(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("history")
    set_age(log.rename(".1"), -100)
    log.write("a")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["a"]
        set_age(log.path, 0)
        tail.look()
        log.beside(".1").rename(log.beside(".3"))
        log.rename(".2")
        log.write("b")
        set_age(log.rename(".1"), 10)
        log.write("c")
        assert tail.look() == ["b", "c"]


def test_two_rotations_between_two_looks_count_as_two(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("a")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["a"]
        log.rename()
        log.write("b")
        log.beside(".1").rename(log.beside(".2"))
        log.rename()
        log.write("c")
        assert tail.look() == ["b", "c"]
        assert tail.files.rotations == 2


@pytest.mark.parametrize("pattern", [True, False])
def test_each_rotation_counts_once(tmp_path: Path, pattern: bool) -> None:
    log = Log(tmp_path)
    log.write("0")
    names: dict[str, object] = {"patterns": ["/logs/app.log*"]} if pattern else {}
    with Following(tmp_path, *(() if pattern else ("/logs/app.log",)), **names) as tail:  # type: ignore[arg-type]
        assert tail.read() == ["0"]
        for number in range(1, 7):
            for older in (".3", ".2", ".1"):
                if log.beside(older).exists():
                    log.beside(older).rename(log.beside(f".{int(older[1]) + 1}"))
            log.rename()
            log.write(f"{number}")
            if number % 3 == 0:
                assert tail.look() == [f"{number - 2}", f"{number - 1}", f"{number}"]
                assert tail.files.rotations == number


def test_copy_that_is_being_packed_counts_as_no_rotation(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("a")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["a"]
        log.rename()
        log.write("b")
        assert tail.look() == ["b"]
        log.beside(".2.gz").write_bytes(
            gzip.compress(log.beside(".1").read_bytes())
        )  # newer than what is in it
        log.beside(".1").unlink()
        log.rename()
        log.write("c")
        assert tail.look() == ["c"]
        assert tail.wait(5) == []
        assert tail.files.rotations == 2


def test_history_that_is_still_written_to_at_the_start_is_not_read_later(tmp_path: Path) -> None:
    """A writer that has not reopened its log yet: its old file is none that was missed."""
    log = Log(tmp_path)
    log.write("old")
    late = log.rename()
    log.write("a")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["a"]
        with late.open("ab") as file:
            file.write(b"late\n")
        os.utime(late, ns=(late.stat().st_atime_ns, log.path.stat().st_mtime_ns + 10**9))
        late.rename(log.beside(".2"))
        log.rename()
        log.write("b")
        assert tail.look() == ["b"]


def test_file_that_was_missed_is_read_though_it_has_the_inode_of_history(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("history")
    reused = log.rename(".1")
    log.write("a")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["a"]
        log.rename(".2")
        reused.write_bytes(b"another file\n")  # as if it were deleted, and its inode another one's
        os.utime(reused, ns=(0, log.beside(".2").stat().st_mtime_ns + 10**9))
        log.write("b")
        assert tail.look() == ["another file", "b"]


def test_file_that_was_missed_is_read_when_the_one_before_it_was_let_go_of(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("a")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["a"]
        gzip_file(log.rename())
        log.write("b")
        log.beside(".1.gz").rename(log.beside(".2.gz"))
        log.rename()
        assert tail.wait(5) == []
        log.write("c")
        assert tail.look() == ["b", "c"]


RENAMING = st.sampled_from(
    ["write", "write", "part", "rename", "recreate", "gzip", "look", "read", "read", "stop", "wait"]
)
TRUNCATING = st.sampled_from(
    ["write", "write", "part", "truncate", "look", "read", "read", "catch_up", "stop", "wait"]
)


class Schedule:
    """A writer, a rotation and a reader that take turns."""

    def __init__(self, root: Path, *, pattern: bool, events: bool) -> None:
        self.root, self.log = root, Log(root)
        self.options = {"patterns": ["/logs/app.log*"]} if pattern else {}
        self.paths = () if pattern else ("/logs/app.log",)
        self.events = events
        self.written: list[str] = []
        self.pending = ""
        self.was_deleted = False
        self.got: list[str] = []
        self.do_write()
        self.tail = self.start([])

    def start(self, cursor: list[object]) -> Following:
        return Following(self.root, *self.paths, **self.options, cursor=cursor, uses_events=self.events)  # type: ignore[arg-type]

    def end_line(self) -> None:
        if self.pending:
            self.log.append(b"\n")
            self.written.append(self.pending)
            self.pending = ""

    def shift(self) -> None:
        """Give each rotated file the next number."""
        names = sorted(self.log.path.parent.glob("app.log.*"), key=lambda path: -int(path.name.split(".")[2]))
        for path in names:
            number = int(path.name.split(".")[2])
            path.rename(path.with_name(path.name.replace(f".{number}", f".{number + 1}", 1)))

    def do(self, action: str) -> None:
        getattr(self, f"do_{action}")()

    def do_write(self) -> None:
        line = f"{len(self.written):02} is the number of this line"
        self.log.append(f"{line[len(self.pending) :] if self.pending else line}\n".encode())
        self.written.append(self.pending + line[len(self.pending) :] if self.pending else line)
        self.pending = ""

    def do_part(self) -> None:
        line = f"{len(self.written):02} is the number of this line"
        cut = len(self.pending) + 3
        if cut < len(line):
            self.log.append(line[len(self.pending) : cut].encode())
            self.pending = line[:cut]

    def do_rename(self) -> None:
        self.end_line()
        if self.was_deleted and self.log.path.exists():
            self.do_look()  # else nothing was ever seen of this file, nor is there one that it came after
            self.was_deleted = False
        if self.log.path.exists():
            self.shift()
            self.log.rename()

    def do_recreate(self) -> None:
        """Delete a file that was read."""
        self.end_line()
        self.do_catch_up()
        self.log.path.unlink(missing_ok=True)
        self.was_deleted = True

    def do_gzip(self) -> None:
        path = self.log.beside(".1")
        if path.exists():
            gzip_file(path)

    def do_truncate(self) -> None:
        self.end_line()
        self.do_look()  # a file of which nothing was seen cannot be known from what it is after the truncation
        self.shift()
        self.log.copy_and_truncate()

    def do_look(self) -> None:
        self.tail.files.note_changes()

    def do_read(self) -> None:
        self.got += self.tail.read(blocks=1, max_bytes=50)

    def do_catch_up(self) -> None:
        for _ in range(2):
            self.got += self.tail.look()

    def do_wait(self) -> None:
        self.got += self.tail.wait(3)

    def do_stop(self) -> None:
        self.tail.files.close()
        self.tail = self.start(self.tail.files.positions())  # type: ignore[arg-type]

    def end(self) -> None:
        self.do_write()  # what was rotated since the last look is found when the name is there again
        self.got += self.tail.wait(70)
        self.tail.files.close()
        assert self.got == self.written, (self.got, self.written, self.tail.kinds())


@given(actions=st.lists(RENAMING, max_size=40), pattern=st.booleans(), events=st.booleans())
@example(actions=["rename", "write", "gzip", "rename", "wait"], pattern=False, events=False)
@example(actions=["rename", "write", "rename", "stop"], pattern=False, events=False)
@example(actions=["rename", "gzip", "look", "read", "stop"], pattern=True, events=False)
@example(actions=["write", "rename", "gzip", "write", "wait", "stop", "rename"], pattern=True, events=False)
@settings(max_examples=150, deadline=None)
def test_any_schedule_of_renames_gives_every_line_once(
    actions: list[str], pattern: bool, events: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schedule = Schedule(tmp_path_factory.mktemp("root"), pattern=pattern, events=events)
    for action in actions:
        schedule.do(action)
    schedule.end()


@given(actions=st.lists(TRUNCATING, max_size=40), pattern=st.booleans(), events=st.booleans())
@example(actions=["read", "truncate", "truncate", "stop"], pattern=True, events=True)
@example(
    actions=["truncate", "catch_up", "write", "write", "truncate", "truncate", "read"],
    pattern=True,
    events=True,
)
@settings(max_examples=150, deadline=None)
def test_any_schedule_of_truncations_with_copies_gives_every_line_once(
    actions: list[str], pattern: bool, events: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schedule = Schedule(tmp_path_factory.mktemp("root"), pattern=pattern, events=events)
    for action in actions:
        schedule.do(action)
    schedule.end()
