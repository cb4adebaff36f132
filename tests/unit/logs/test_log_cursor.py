"""Going on from the positions of an earlier run."""

import gzip
import os
from pathlib import Path

import pytest

from aeolus_sandbox.guest.logs.frames import FilePosition
from tests.unit.logs.writers import Following, Log, gzip_file, set_age


def read_first(root: Path, *, pattern: bool = False) -> list[FilePosition]:
    """Read the first block of what is there, and stop."""
    names: dict[str, object] = {"patterns": ["/logs/app.log*"]} if pattern else {}
    with Following(root, *(() if pattern else ("/logs/app.log",)), **names) as tail:  # type: ignore[arg-type]
        tail.read(blocks=1, max_bytes=6)
        return tail.files.positions()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = Log(tmp_path)
    log.write("one", "two", "three")
    set_age(log.path, 0)
    return log


def test_goes_on_behind_what_was_handed_out(tmp_path: Path, log: Log) -> None:
    with Following(tmp_path, "/logs/app.log", cursor=read_first(tmp_path), follow=False) as tail:
        assert tail.read() == ["two", "three"]
        assert tail.notices == []


def test_position_of_a_block_is_where_it_ends(tmp_path: Path, log: Log) -> None:
    with Following(tmp_path, "/logs/app.log") as tail:
        tail.read(max_bytes=5)
        positions = [tail.files.position_of(block) for block in tail.blocks]
    assert [position.offset for position in positions] == [4, 8, 14]
    for position, rest in zip(positions, (["two", "three"], ["three"], []), strict=True):
        with Following(tmp_path, "/logs/app.log", cursor=[position], follow=False) as tail:
            assert tail.read() == rest


@pytest.mark.parametrize("kind", ["renamed", "copied", "gzipped", "renamed twice"])
@pytest.mark.parametrize("follow", [True, False])
def test_rest_of_what_was_rotated_comes_first(tmp_path: Path, log: Log, kind: str, follow: bool) -> None:
    cursor = read_first(tmp_path)
    if kind == "copied":
        log.copy_and_truncate()
    elif kind == "gzipped":
        gzip_file(log.rename())
    else:
        log.rename(".2" if kind == "renamed twice" else ".1")
    if kind == "renamed twice":
        log.write("between")
        set_age(log.rename(".1"), 5)
    log.write("new")
    with Following(tmp_path, "/logs/app.log", cursor=cursor, follow=follow) as tail:
        between = ["between"] if kind == "renamed twice" else []
        assert tail.read() == ["two", "three", *between, "new"]
        assert {block.path for block in tail.blocks} == {"/logs/app.log"}
        assert "lost" not in tail.kinds()


def test_history_before_the_position_is_not_read(tmp_path: Path, log: Log) -> None:
    log.beside(".3").write_text("older\n")
    set_age(log.beside(".3"), -50)
    cursor = read_first(tmp_path)
    log.rename(".2")
    log.write("new")
    with Following(tmp_path, "/logs/app.log", cursor=cursor) as tail:
        assert tail.read() == ["two", "three", "new"]


def test_truncated_file_is_read_from_its_beginning(tmp_path: Path, log: Log) -> None:
    cursor = read_first(tmp_path)
    os.truncate(log.path, 0)
    log.write("new 1", "new 2", "new 3")
    with Following(tmp_path, "/logs/app.log", cursor=cursor) as tail:
        assert tail.read() == ["new 1", "new 2", "new 3"]
        assert tail.kinds() == ["truncated"]


def test_file_that_is_nowhere_is_told(tmp_path: Path, log: Log) -> None:
    cursor = read_first(tmp_path)
    log.path.rename(tmp_path / "away")
    log.write("new")
    with Following(tmp_path, "/logs/app.log", cursor=cursor) as tail:
        assert tail.read() == ["new"]
        assert tail.kinds() == ["lost"]


def test_history_of_a_pattern_is_not_repeated(tmp_path: Path, log: Log) -> None:
    log.beside(".1").write_text("older\n")
    set_age(log.beside(".1"), -50)
    with Following(tmp_path, patterns=["/logs/app.log*"]) as tail:
        assert tail.read() == ["older", "one", "two", "three"]
        log.beside(".1").rename(log.beside(".2"))
        log.rename()
        log.write("new")
        assert tail.look() == ["new"]
        cursor = tail.files.positions()
    gzip_file(log.beside(".1"))
    log.write("last")
    with Following(tmp_path, patterns=["/logs/app.log*"], cursor=cursor) as tail:
        assert [*tail.read(), *tail.wait(5)] == ["last"]


def test_position_in_a_gzip_file_is_of_what_is_in_it(tmp_path: Path, log: Log) -> None:
    gzip_file(log.path, target=log.beside(".1.gz"))
    cursor = read_first(tmp_path, pattern=True)
    assert [(position.path, position.offset) for position in cursor] == [("/logs/app.log.1.gz", 4)]
    with Following(tmp_path, patterns=["/logs/app.log*"], cursor=cursor, follow=False) as tail:
        assert tail.read() == ["two", "three"]


def test_moved_files_are_known_by_their_content(tmp_path: Path, log: Log) -> None:
    cursor = read_first(tmp_path)
    content = log.path.read_bytes()
    (tmp_path / "logs/keeps-the-inode").hardlink_to(log.path)
    log.path.unlink()
    log.path.write_bytes(content + b"four\n")
    with Following(tmp_path, "/logs/app.log", cursor=cursor, follow=False) as tail:
        assert tail.read() == ["two", "three", "four"]


def test_file_that_went_on_as_another_one_says_which_position_it_replaces(tmp_path: Path, log: Log) -> None:
    first = read_first(tmp_path)
    log.path.rename(tmp_path / "elsewhere")  # so that its inode is not used again
    log.beside(".1.gz").write_bytes(gzip.compress(b"one\ntwo\nthree\n"))
    with Following(tmp_path, "/logs/app.log", cursor=first) as tail:
        assert tail.read() == ["two", "three"]
        [position] = tail.files.positions()
        assert tail.files.position_of(tail.blocks[0]).replaces == (first[0].device, first[0].inode)
    assert (position.inode, position.offset) == (log.beside(".1.gz").stat().st_ino, 14)
    assert position.replaces == (first[0].device, first[0].inode)


@pytest.mark.parametrize("pattern", [True, False])
def test_copy_in_which_a_truncated_file_goes_on_replaces_its_position(
    tmp_path: Path, log: Log, pattern: bool
) -> None:
    names: dict[str, object] = {"patterns": ["/logs/app.log*"]} if pattern else {}
    paths = () if pattern else ("/logs/app.log",)
    with Following(tmp_path, *paths, **names) as tail:  # type: ignore[arg-type]
        assert tail.read(blocks=1, max_bytes=6) == ["one"]
        copy = log.copy_and_truncate()
        log.write("new")
        assert tail.look() == ["two", "three", "new"]
        live, kept = log.path.stat(), copy.stat()
        assert [(each.inode, each.offset, each.replaces) for each in tail.files.positions()] == [
            (kept.st_ino, 14, (live.st_dev, live.st_ino)),
            (live.st_ino, 4, None),
        ]
        cursor = tail.files.positions()
    with Following(tmp_path, *paths, cursor=cursor, **names) as tail:  # type: ignore[arg-type]
        assert (tail.read(), tail.kinds()) == ([], [])


@pytest.mark.parametrize("stale_first", [True, False])
def test_position_that_was_left_over_is_not_read_again_and_not_told_as_lost(
    tmp_path: Path, stale_first: bool
) -> None:
    log = Log(tmp_path)
    log.write("one", "two", "three", *("x" * 100 for _ in range(20)))
    first = read_first(tmp_path)
    kept = log.path.rename(tmp_path / "elsewhere")  # so that its inode is not used again
    log.beside(".2.gz").write_bytes(gzip.compress(kept.read_bytes()))
    log.write("new")
    with Following(tmp_path, "/logs/app.log", cursor=first) as tail:
        assert tail.read()[0] == "two"
        second = tail.files.positions()
    cursor = [*first, *second] if stale_first else [*second, *first]
    with Following(tmp_path, "/logs/app.log", cursor=cursor) as tail:
        assert (tail.read(), tail.kinds()) == ([], [])


def test_what_is_written_to_a_renamed_file_comes_first_after_a_resumption_too(
    tmp_path: Path, log: Log
) -> None:
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["one", "two", "three"]
        log.rename()
        log.write("new")
        assert tail.look() == ["new"]
        cursor = tail.files.positions()
    with Following(tmp_path, "/logs/app.log", cursor=cursor) as tail:
        assert tail.read() == []
        Log(tmp_path, "/logs/app.log.1").write("late")
        log.write("newer")
        assert tail.look() == ["late", "newer"]
        assert tail.wait(70) == []
        assert [each.done for each in tail.files.positions()] == [True, False]


def test_missed_file_is_no_history_when_another_log_of_its_folder_begins_first(
    tmp_path: Path, log: Log
) -> None:
    cursor = read_first(tmp_path)
    set_age(log.rename(".2"), 1)
    log.write("between")
    set_age(log.rename(".1"), 5)
    with Following(tmp_path, "/logs/app.log", "/logs/other.log", cursor=cursor) as tail:
        assert tail.read() == ["two", "three"]
        Log(tmp_path, "/logs/other.log").write("other")
        assert tail.look() == ["other"]
        log.write("new")
        assert tail.look() == ["between", "new"]


def test_positions_of_other_paths_are_left_alone(tmp_path: Path, log: Log) -> None:
    Log(tmp_path, "/logs/secret.log").write("secret")
    cursor = [
        FilePosition("/logs/secret.log", 0, 0, 0),
        FilePosition("/etc/passwd", 1, 2, 3, 4, "00"),
        *read_first(tmp_path),
    ]
    with Following(tmp_path, "/logs/app.log", cursor=cursor, follow=False) as tail:
        assert tail.read() == ["two", "three"]


def test_a_hostile_cursor_harms_nothing(tmp_path: Path, log: Log) -> None:
    status = log.path.stat()
    for offset, count in ((-5, 0), (1 << 70, 3), (3, -1), (3, 1 << 40)):
        cursor = [FilePosition("/logs/app.log", status.st_dev, status.st_ino, offset, count, "x")]
        with Following(tmp_path, "/logs/app.log", cursor=cursor, follow=False) as tail:
            assert tail.read() == ["one", "two", "three"]
