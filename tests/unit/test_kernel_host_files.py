"""The kernel host writes files below its workspace, exactly, and nowhere else."""

import os
import subprocess
from pathlib import Path

import pytest

from aeolus_sandbox.guest.frames import (
    Changes,
    Done,
    Execute,
    FilePiece,
    Interrupt,
    KernelDied,
    KillKernel,
    ListChanges,
    ReadFile,
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


def changes(guest: Guest, op: int) -> Changes:
    guest.send(ListChanges(op=op))
    [found] = [
        reply for reply in guest.until(lambda reply: isinstance(reply, Changes)) if isinstance(reply, Changes)
    ]
    assert found.op == op
    return found


def read(guest: Guest, op: int, path: str, max_bytes: int = 1_000_000) -> tuple[bytes, Done]:
    guest.send(ReadFile(op=op, path=path, max_bytes=max_bytes))
    *pieces, done = guest.until(lambda reply: isinstance(reply, Done))
    assert isinstance(done, Done)
    assert done.op == op
    return b"".join(piece.data for piece in pieces if isinstance(piece, FilePiece)), done


def test_changes_are_told_once_and_what_the_host_wrote_is_none(guest: Guest, tmp_path: Path) -> None:
    write(guest, 100, "put/in", b"from the host")
    assert changes(guest, 101).files == []
    (tmp_path / "new").write_bytes(b"x" * 100)
    (tmp_path / "put/in").write_bytes(b"by the code..")  # as long as it was
    for hidden in (".cache/a", "__pycache__/b", "node_modules/c", "put/.d"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).touch()
    found = {file.path: (file.change, file.size_bytes, file.head) for file in changes(guest, 102).files}
    assert found == {"new": ("created", 100, b"x" * 64), "put/in": ("modified", 13, b"by the code..")}
    (tmp_path / "put/in").unlink()
    (tmp_path / "new").rename(tmp_path / "newer")
    told = changes(guest, 103)
    assert {file.path: file.change for file in told.files} == {
        "newer": "created",
        "new": "deleted",
        "put/in": "deleted",
    }
    assert (told.complete, told.left_out) == (True, 0)
    assert changes(guest, 104).files == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("open('new', 'w').write('x')", "ok"),
        ("open('new', 'w').write('x'); 1/0", "error"),
        ("open('new', 'w').write('x'); import os, signal; os.kill(os.getpid(), signal.SIGINT)", "error"),
    ],
)
def test_changes_of_a_cell_come_right_behind_its_end(guest: Guest, code: str, said: str) -> None:
    guest.send(
        Execute(op=1, code=code, list_changes=True),
        Execute(op=2, code="import os; os.remove('new')", list_changes=True),
        Execute(op=3, code="open('unasked', 'w').write('x')"),
    )
    told = [reply for reply in guest.finish(3) if isinstance(reply, Done | Changes)]
    assert [type(reply) for reply in told] == [Done, Changes, Done, Changes, Done]
    first, first_changes, second, second_changes, third = told
    assert first == Done(op=1, status=said, changes_follow=True)
    assert (second, third) == (Done(op=2, status="ok", changes_follow=True), Done(op=3, status="ok"))
    assert isinstance(first_changes, Changes)
    assert isinstance(second_changes, Changes)
    assert [(file.path, file.change) for file in first_changes.files] == [("new", "created")]
    assert [(file.path, file.change) for file in second_changes.files] == [("new", "deleted")]
    assert (first_changes.op, second_changes.op) == (1, 2)
    assert [file.path for file in changes(guest, 100).files] == ["unasked"]


def test_changes_of_an_interrupted_cell_come_and_those_of_a_killed_kernel_are_left_to_be_asked_for(
    guest: Guest,
) -> None:
    code = "open('{}', 'w').write('x'); print('begun', flush=True)\nwhile True: pass"
    guest.send(Execute(op=1, code=code.format("interrupted"), list_changes=True))
    guest.says("begun")
    guest.send(Interrupt(op=1))
    assert guest.finish(1)[-1] == Done(op=1, status="interrupted", changes_follow=True)
    following = guest.next()
    assert isinstance(following, Changes)
    assert [file.path for file in following.files] == ["interrupted"]
    guest.send(Execute(op=2, code=code.format("killed"), list_changes=True))
    guest.says("begun")
    guest.send(KillKernel(op=2))
    assert isinstance(guest.finish(2)[-1], KernelDied)
    assert [file.path for file in changes(guest, 100).files] == ["killed"]


def test_a_look_at_many_files_does_not_hold_up_the_end_of_a_cell(guest: Guest, tmp_path: Path) -> None:
    for number in range(20_000):
        os.mknod(tmp_path / str(number))
    assert len(changes(guest, 100).files) == 1000  # a slow look, and the guest knows it by now
    guest.send(Execute(op=1, code="open('new', 'w').write('x')", list_changes=True))
    assert guest.finish(1)[-1] == Done(op=1, status="ok", changes_follow=True)
    assert not guest.holds_more
    following = guest.next()
    assert isinstance(following, Changes)
    assert [file.path for file in following.files] == ["new"]


def test_changes_beyond_the_limits_are_counted(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for number in range(1100):
        (tmp_path / f"deep/{number}").touch()
    (tmp_path / "first").touch()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/not-utf8-\xff")).touch()
    found = changes(guest, 100)
    assert (len(found.files), found.left_out, found.complete) == (1000, 102, True)
    assert found.files[0].path == "first"  # those further up come first
    for number in range(120):
        (tmp_path / f"{number:0250}").touch()
        (tmp_path / "deep" / f"{number:0250}").mkdir()
        for name in range(10):
            (tmp_path / "deep" / f"{number:0250}" / f"{name:0250}").touch()
    found = changes(guest, 101)
    assert sum(len(file.path) for file in found.files) <= 256 * 1024
    assert len(found.files) + found.left_out == 120 + 1200


def test_reads_stay_inside_the_workspace(guest: Guest, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-secret"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(outside / "secret")
    (tmp_path / "folder").symlink_to(outside)
    (tmp_path / "inside").mkdir()
    os.mkfifo(tmp_path / "fifo")
    wrong = [
        "link",
        "folder/secret",
        "inside",
        "fifo",
        "../x",
        f"{outside}/secret",
        "",
        ".",
        "..",
        "a//b",
        "nul\0",
    ]
    for op, path in enumerate(
        [*wrong, "n" * 300, "d/" * 60_000, "missing", "inside/../folder/secret"], start=100
    ):
        data, done = read(guest, op, path)
        assert (data, done.status) == (b"", "refused"), path
        assert done.message
    (tmp_path / "inside/new\nline").write_bytes(b"fine")
    assert read(guest, 200, "inside/new\nline") == (b"fine", Done(op=200, status="ok"))


def test_reads_are_exact_and_none_is_larger_than_asked_for(guest: Guest, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "large").write_bytes(content)
    (tmp_path / "empty").touch()
    assert read(guest, 100, "large", len(content)) == (content, Done(op=100, status="ok"))
    assert read(guest, 101, "empty", 0) == (b"", Done(op=101, status="ok"))
    data, done = read(guest, 102, "large", len(content) - 1)
    assert (data, done.status) == (b"", "refused")
    assert "3000000 bytes, more than the 2999999 allowed" in done.message
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert read(guest, 103, "sparse")[1].status == "refused"


def test_a_read_that_nobody_takes_is_interrupted_and_cells_go_on(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(50_000_000))
    guest.send(
        ReadFile(op=100, path="large", max_bytes=50_000_000), ReadFile(op=101, path="large", max_bytes=1)
    )
    guest.until(lambda reply: isinstance(reply, FilePiece))
    op = guest.start("1 + 1")
    guest.send(Interrupt(op=101), Interrupt(op=100))
    replies = guest.until(lambda reply: isinstance(reply, Done) and reply.op == 100)
    assert status(replies) == "interrupted"
    assert sum(len(reply.data) for reply in replies if isinstance(reply, FilePiece)) < 10_000_000
    if not any(isinstance(reply, Done) and reply.op == op for reply in replies):
        assert status(guest.finish(op)) == "ok"
