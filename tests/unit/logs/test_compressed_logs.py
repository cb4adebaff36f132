"""Rotated history that is compressed, and files with several names."""

import gzip
from pathlib import Path

from tests.unit.logs.writers import Following, Log, gzip_file, set_age


def history(root: Path) -> Log:
    log = Log(root)
    log.write("L1")
    set_age(log.rename(".2"), 1)
    gzip_file(log.beside(".2"))
    log.write("L2")
    set_age(log.rename(".1"), 2)
    log.write("L3")
    set_age(log.path, 3)
    return log


def test_history_is_read_once_oldest_first(tmp_path: Path) -> None:
    log = history(tmp_path)
    (log.path.parent / "current.log").symlink_to("app.log")
    with Following(tmp_path, patterns=["/logs/*.log*"], follow=False) as tail:
        assert tail.read() == ["L1", "L2", "L3"]
        assert tail.files.files == ["/logs/app.log.2.gz", "/logs/app.log.1", "/logs/app.log"]
        assert tail.notices == []


def test_gzip_rotation_while_following_repeats_nothing(tmp_path: Path) -> None:
    log = history(tmp_path)
    with Following(tmp_path, patterns=["/logs/app.log*"]) as tail:
        assert tail.read() == ["L1", "L2", "L3"]
        log.beside(".1").unlink()
        gzip_file(log.rename())
        log.write("L4")
        assert tail.wait(5) == ["L4"]
        assert tail.wait(70) == []
        assert "lost" not in tail.kinds()
        assert "unreadable" not in tail.kinds()


def test_gzip_file_that_is_still_written_is_recognized_when_it_is_whole(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(*(f"line {number}" for number in range(50_000)))
    lines = log.path.read_text().splitlines()
    with Following(tmp_path, patterns=["/logs/app.log*"]) as tail:
        assert tail.read() == lines
        packed, growing = gzip.compress(log.path.read_bytes()), Log(tmp_path, "/logs/app.log.1.gz")
        log.rename()
        for at in range(0, len(packed), 10_000):
            growing.append(packed[at : at + 10_000])
            assert tail.look() == []
        log.beside(".1").unlink()
        assert tail.wait(10) == []
        assert tail.told("unreadable") == []


def test_unknown_gzip_history_of_several_members(tmp_path: Path) -> None:
    log = Log(tmp_path, "/logs/old.gz.log")
    log.append(gzip.compress(b"one\ntw") + gzip.compress(b"o\nthree\n") + bytes(512))
    with Following(tmp_path, "/logs/old.gz.log", follow=False) as tail:
        assert tail.read(max_bytes=3) == ["one", "two", "three"]
        assert tail.notices == []
        position = tail.files.positions()[0]
        assert (position.offset, position.done) == (14, True)


def test_cut_and_damaged_gzip_files_give_what_can_be_read(tmp_path: Path) -> None:
    log = Log(tmp_path)
    text = b"".join(b"%d %d\n" % (number, number * number) for number in range(3000))
    packed = gzip.compress(text)
    log.beside(".2.gz").write_bytes(packed[: len(packed) // 2])
    log.beside(".3.gz").write_bytes(packed[:2000] + b"\xff" * 2000 + packed[4000:])
    log.write("live")
    with Following(tmp_path, patterns=["/logs/app.log*"]) as tail:
        lines = [*tail.read(), *tail.wait(5)]
        assert "live" in lines
        assert len(lines) > 100
        assert sorted(notice.path or "" for notice in tail.told("unreadable")) == [
            "/logs/app.log.2.gz",
            "/logs/app.log.3.gz",
        ]


def test_decompression_is_bounded(tmp_path: Path) -> None:
    log = Log(tmp_path, "/logs/app.log.1.gz")
    log.append(gzip.compress(bytes(b"a" * 50_000_000) + b"\nend\n", 1))
    with Following(tmp_path, "/logs/app.log.1.gz", follow=False) as tail:
        assert [len(line) for line in tail.read()] == [64 * 1024, 3]


def test_other_compressions_are_skipped_with_a_notice(tmp_path: Path) -> None:
    for name, head in (("a.zst", b"\x28\xb5\x2f\xfd"), ("b.xz", b"\xfd7zXZ\0"), ("c.bz2", b"BZh91AY&SY")):
        Log(tmp_path, f"/logs/{name}").append(head + bytes(range(200)))
    Log(tmp_path, "/logs/d.log").write("BZh is how this line begins")
    with Following(tmp_path, patterns=["/logs/*"]) as tail:
        assert tail.read() == ["BZh is how this line begins"]
        assert tail.kinds() == ["skipped"] * 3
        assert tail.wait(3) == []
        assert tail.kinds() == ["skipped"] * 3


def test_last_lines_of_a_gzip_file(tmp_path: Path) -> None:
    log = Log(tmp_path, "/logs/old.gz")
    log.append(gzip.compress(b"".join(b"%d\n" % number for number in range(1000))))
    with Following(tmp_path, "/logs/old.gz", follow=False, tail_lines=3) as tail:
        assert tail.read() == ["997", "998", "999"]


def test_copy_that_a_pattern_matches_is_not_read(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("a", "b")
    with Following(tmp_path, patterns=["/logs/app.log*"]) as tail:
        assert tail.read() == ["a", "b"]
        log.beside(".1").write_bytes(log.path.read_bytes())
        assert tail.look() == []
        log.path.write_bytes(b"")
        log.write("c")
        assert tail.look() == ["c"]
        assert tail.wait(70) == []
