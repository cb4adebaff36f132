"""The kernel host writes files below its workspace, exactly, and nowhere else."""

import os
import subprocess
from pathlib import Path

from aeolus_sandbox.guest.frames import (
    Done,
    WriteFile,
)
from tests.unit.guest_process import Guest, status


def write(guest: Guest, op: int, path: str, *pieces: bytes) -> Done:
    last = len(pieces) - 1
    guest.send(
        *(WriteFile(op=op, path=path, data=p, first=n == 0, last=n == last) for n, p in enumerate(pieces))
    )
    done = guest.next()
    assert isinstance(done, Done)
    assert done.op == op
    return done


def test_files_arrive_exactly_and_belong_to_the_code(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"much longer than the new text")
    large = bytes(range(256)) * 1024
    cases = {
        "h\u00e9llo w\u00f6rld.txt": [b"abc"],
        "a/b/c.txt": [b"1", b"2"],
        "empty": [b""],
        "old": [b"new"],
    }
    for op, (path, pieces) in enumerate([*cases.items(), ("large", [large] * 20)], start=100):
        assert write(guest, op, path, *pieces).status == "ok"
        assert (tmp_path / path).read_bytes() == b"".join(pieces)
    replies = guest.run(
        "open('h\u00e9llo w\u00f6rld.txt', 'a').write('d'); import os; os.remove('empty'); os.listdir()"
    )
    assert status(replies) == "ok"
    assert (tmp_path / "h\u00e9llo w\u00f6rld.txt").read_bytes() == b"abcd"


def test_no_path_leads_out_of_the_workspace(guest: Guest, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(outside / "secret")
    (tmp_path / "folder").symlink_to(outside)
    (tmp_path / "inside").mkdir()
    os.mkfifo(tmp_path / "fifo")
    wrong = [
        "../x",
        "a/../../x",
        f"{outside}/x",
        "link",
        "folder/x",
        "folder/secret",
        "",
        ".",
        "..",
        "a//b",
        "a/",
    ]
    wrong += ["inside", "fifo", "nul\0", "n" * 300, "inside/../folder/x"]
    for op, path in enumerate(wrong, start=100):
        done = write(guest, op, path, b"evil", b"more")
        assert done.status == "refused", path
        assert "cannot write" in done.message
    assert sorted(outside.iterdir()) == [outside / "secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert write(guest, 200, "fine", b"x").status == "ok"


def test_a_failed_file_is_refused_once_and_leaves_no_half(guest: Guest, tmp_path: Path) -> None:
    resource_limit = 1_000_000
    subprocess.run(["prlimit", f"--fsize={resource_limit}", f"--pid={guest.process.pid}"], check=True)
    assert write(guest, 100, "big", *[b"x" * 300_000] * 8).status == "refused"
    assert not (tmp_path / "big").exists()
    assert write(guest, 100, "small", b"x").status == "ok"
    done = write(guest, 101, "again", b"x" * 300_000)
    assert done.status == "ok"
