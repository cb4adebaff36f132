"""Which files a path may lead to, and how odd names are taken."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.sources.paths import HostPaths, RefusedPath
from aeolus_sandbox.guest.logs.sources.patterns import PathPattern
from tests.unit.logs.writers import Following, Log


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file outside the mounted folder, but below the root."""
    secret = tmp_path / "etc/passwd"
    secret.parent.mkdir()
    secret.write_text("secret\n")
    Log(tmp_path).write("fine")
    return secret


@pytest.mark.parametrize(
    "path", ["/logs/../etc/passwd", "/logs-other/x.log", "/etc/passwd", "/proc/self/environ", "/"]
)
def test_path_outside_the_mounts_is_refused(tmp_path: Path, outside: Path, path: str) -> None:
    with Following(tmp_path, path, "/logs/app.log", follow=False) as tail:
        assert tail.read() == ["fine"]
        assert [(notice.kind, notice.path) for notice in tail.notices] == [("refused", path)]
        assert "outside the mounted paths" in tail.notices[0].text


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../etc/passwd", "../../../../../etc/passwd", "/logs/../etc/passwd"]
)
def test_link_that_leads_outside_is_refused_by_name(tmp_path: Path, outside: Path, target: str) -> None:
    (tmp_path / "logs/evil.log").symlink_to(target)
    with Following(tmp_path, patterns=["/logs/*.log"]) as tail:
        assert tail.read() == ["fine"]
        tail.wait(3)
        text = f"the link /logs/evil.log leads to {target}, outside the mounted paths"
        assert [(notice.kind, notice.text) for notice in tail.notices] == [("refused", text)]


def test_link_whose_target_is_not_mounted_is_not_silent(tmp_path: Path) -> None:
    Log(tmp_path, "/logs/pods/p1/0.log").write("a1")
    link = Log(tmp_path, "/logs/containers/web.log").path
    link.symlink_to("/logs/pods/p1/0.log")
    with Following(tmp_path, "/logs/containers/web.log", mounts=["/logs/containers"]) as tail:
        assert tail.read() == []
        assert (
            "/logs/containers/web.log leads to /logs/pods/p1/0.log, outside the mounted"
            in tail.notices[0].text
        )


def test_folder_swapped_for_a_link_while_it_is_opened_leads_nowhere(tmp_path: Path, outside: Path) -> None:
    """A process swaps a folder and a link to the outside all the time; only the inner file is ever opened."""
    Log(tmp_path, "/logs/inner/passwd").write("inner")
    program = """
import os, sys
os.chdir(sys.argv[1])
os.symlink("../etc", "link")
while True:
    os.rename("inner", "kept"); os.rename("link", "inner"); os.rename("inner", "link"); os.rename("kept", "inner")
"""
    swapper = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "logs")])
    host = HostPaths(str(tmp_path), ["/logs"])
    opened, refused = 0, 0
    try:
        while opened < 300 or refused < 20:
            assert swapper.poll() is None
            try:
                fd = host.open("/logs/inner/passwd")
            except RefusedPath:
                refused += 1
            except OSError:
                continue
            else:
                opened += 1
                assert os.read(fd, 100) == b"inner\n"
                os.close(fd)
    finally:
        swapper.kill()
        swapper.wait(10)
        host.close()


@pytest.mark.parametrize("kind", ["fifo", "folder", "loop"])
def test_what_is_no_regular_file_is_refused_without_blocking(tmp_path: Path, kind: str) -> None:
    Log(tmp_path).write("fine")
    path = tmp_path / "logs/odd"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("odd")
    with Following(tmp_path, "/logs/odd", "/logs/app.log") as tail:
        assert tail.read() == ["fine"]
        assert tail.wait(3) == []
        assert len(tail.notices) == 1
        assert tail.notices[0].kind == ("unreadable" if kind == "loop" else "refused")


def test_missing_file_is_waited_for_when_following(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with Following(tmp_path, "/logs/none.log") as tail:
        assert tail.wait(3) == []
        assert tail.notices == []
        Log(tmp_path, "/logs/none.log").write("first")
        assert tail.look() == ["first"]
        assert tail.kinds() == ["appeared"]


def test_missing_file_is_told_when_not_following(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with Following(tmp_path, "/logs/none.log", follow=False) as tail:
        assert tail.read() == []
        assert tail.files.is_finished
        assert [(notice.kind, notice.text) for notice in tail.notices] == [
            ("gone", "/logs/none.log: no such file")
        ]


@contextmanager
def as_nobody() -> Iterator[None]:
    """Run without the rights of root, which may read everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_unreadable_file_is_told_once_and_read_when_that_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(
        tmp_path
    )  # a relative root needs no rights on the folders above it, which are root's alone
    tmp_path.chmod(0o755)
    log, other = Log(tmp_path), Log(tmp_path, "/logs/other.log")
    log.write("hidden")
    other.write("fine")
    log.path.chmod(0)
    with as_nobody(), Following(Path(), "/logs/app.log", "/logs/other.log") as tail:
        assert tail.read() == ["fine"]
        assert tail.wait(5) == []
        assert [(notice.kind, notice.path) for notice in tail.notices] == [("unreadable", "/logs/app.log")]
        os.seteuid(0) if os.getuid() == 0 else None
        log.path.chmod(0o644)
        os.seteuid(65534) if os.getuid() == 0 else None
        assert tail.look() == ["hidden"]


@contextmanager
def refusing(tail: Following, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no file be opened for a while."""

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(tail.files._catalog.host, "open", refuse)
        yield


def test_new_file_that_cannot_be_read_for_a_moment_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """logrotate's `create MODE OWNER GROUP`, and gzip, make files as 0600 of root, and give them away after."""
    log = Log(tmp_path)
    log.write("a")
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == ["a"]
        log.rename()
        log.append(b"")
        with refusing(tail, monkeypatch):
            assert tail.look() == []
        log.write("b")
        assert tail.look() == ["b"]
        assert tail.wait(5) == []
        assert "unreadable" not in tail.kinds()


def test_file_that_stays_unreadable_is_told_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path)
    (tmp_path / "logs").mkdir(exist_ok=True)
    with Following(tmp_path, "/logs/app.log") as tail:
        with refusing(tail, monkeypatch):
            for number in range(5):
                log.write(f"line {number}")
                assert tail.wait(1) == []
            assert [(notice.kind, notice.path) for notice in tail.notices] == [
                ("appeared", "/logs/app.log"),
                ("unreadable", "/logs/app.log"),
            ]
        log.write("line 5")
        assert tail.look() == [f"line {number}" for number in range(6)]


def test_unreadable_file_is_told_at_once_when_not_following(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Log(tmp_path).write("hidden")
    with Following(tmp_path, "/logs/app.log", follow=False) as tail:
        tail.files._catalog.open_files.close_all()
        with refusing(tail, monkeypatch):
            assert tail.read() == []
        assert tail.kinds() == ["unreadable"]
        assert tail.files.is_finished


ODD = ["app[1].log", "a b.log", "new\nline.log", "-n", "*.log", "?", "ünï.log"]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_literal(tmp_path: Path, name: str) -> None:
    for each in [*ODD, "app1.log", "x"]:
        Log(tmp_path, f"/logs/{each}").write(f"of {each!r}")
    with Following(tmp_path, f"/logs/{name}") as tail:
        assert tail.read() == [f"of {name!r}"]


def test_names_that_are_not_utf8_are_not_matched(tmp_path: Path) -> None:
    Log(tmp_path).write("fine")
    (tmp_path / "logs" / os.fsdecode(b"bad\xff.log")).write_text("never\n")
    with Following(tmp_path, patterns=["/logs/*.log"]) as tail:
        assert tail.read() == ["fine"]


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/logs/*.log", "/logs/a.log", True),
        ("/logs/*.log", "/logs/.a.log", False),
        ("/logs/.*.log", "/logs/.a.log", True),
        ("/logs/*.log", "/logs/x/a.log", False),
        ("/logs/**/*.log", "/logs/a.log", True),
        ("/logs/**/*.log", "/logs/x/y/a.log", True),
        ("/logs/**/*.log", "/logs/.x/a.log", False),
        ("/logs/**", "/logs/x/a", True),
        ("/logs/**/**/x/*", "/logs/x/a", True),
        ("/logs/**/x/**/a", "/logs/b/x/c/x/a", True),
        ("/logs/app.log.?", "/logs/app.log.1", True),
        ("/logs/app.log.[0-4]", "/logs/app.log.7", False),
        ("/logs/[!a].log", "/logs/b.log", True),
        ("/logs/a/b", "/logs/a", False),
    ],
)
def test_patterns_match_as_they_find(tmp_path: Path, pattern: str, path: str, matches: bool) -> None:
    Log(tmp_path, path).write("x")
    host = HostPaths(str(tmp_path), ["/logs"])
    assert PathPattern(pattern).matches(path) is matches
    assert list(PathPattern(pattern).find(host).paths) == ([path] if matches else [])
    host.close()


@given(
    st.lists(st.sampled_from(["a", "*", "**", "?", "b*", ".h"]), min_size=1, max_size=6),
    st.text("ab/.h", max_size=12),
)
def test_matching_never_raises(parts: list[str], path: str) -> None:
    PathPattern("/" + "/".join(parts)).matches("/" + path)


def test_new_files_that_match_are_read_from_their_beginning(tmp_path: Path) -> None:
    Log(tmp_path).write("old 1", "old 2")
    with Following(tmp_path, patterns=["/logs/**/*.log"], tail_lines=1) as tail:
        assert tail.read() == ["old 2"]
        Log(tmp_path, "/logs/deep/er/new.log").write("new 1", "new 2")
        assert tail.look() == ["new 1", "new 2"]
        assert [(notice.kind, notice.path) for notice in tail.notices] == [
            ("appeared", "/logs/deep/er/new.log")
        ]


def test_names_that_no_frame_can_say_harm_nothing(tmp_path: Path) -> None:
    Log(tmp_path).write("fine")
    (tmp_path / "logs/evil.log").symlink_to(os.fsdecode(b"/etc/\xff"))
    with Following(tmp_path, "/logs/\0", "/logs/evil.log", "/logs/app.log", follow=False) as tail:
        assert tail.read() == ["fine"]
        assert tail.kinds() == ["refused", "refused"]
        assert all(notice.text.encode() for notice in tail.notices)
