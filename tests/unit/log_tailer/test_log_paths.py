"""No path leads out of what was granted, whatever it is called and wherever its links lead."""

import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aeolus_sandbox.capabilities import ReadLogs, is_inside
from aeolus_sandbox.errors import CapabilityDenied, ConfigurationError, LogPathRefused
from aeolus_sandbox.guest.logs.frames import TailPath
from aeolus_sandbox.profiles import Mount
from aeolus_sandbox.tools.log_tailer import folders as folders_module
from aeolus_sandbox.tools.log_tailer import paths as paths_module
from aeolus_sandbox.tools.log_tailer.folders import LogFolders, PinnedFolder, pinned
from aeolus_sandbox.tools.log_tailer.paths import LogPaths, find_paths
from aeolus_sandbox.tools.log_tailer.replies import MountIdentity


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Give a granted folder, beside one of nearly the same name and a secret."""
    folder = tmp_path.resolve() / "logs"
    folder.mkdir()
    (folder / "app.log").write_text("one\n")
    other = folder.with_name("logs-other")
    other.mkdir()
    (other / "x.log").write_text("secret\n")
    (folder.parent / "secret").write_text("secret\n")
    return folder


def find(*asked: object, roots: Any, glob: bool | None = None, follow: bool = False) -> LogPaths:
    access = ReadLogs(roots=[str(root) for root in (roots if isinstance(roots, list) else [roots])])
    found = find_paths([str(path) for path in asked], access, is_glob=glob, follow=follow)
    found.folders.close()
    return found


def named(found: LogPaths) -> list[str]:
    return [path.path for path in found.paths]


# What may be read.


def test_a_file_is_read_and_its_folder_is_mounted(logs: Path) -> None:
    found = find(logs / "app.log", roots=logs)
    assert found.paths == (TailPath(f"{logs}/app.log"),)
    assert found.folders.mounts == (Mount(source=str(logs), target=f"/host{logs}"),)


def test_several_paths_of_one_folder_need_one_mount(logs: Path) -> None:
    (logs / "deep").mkdir()
    (logs / "deep" / "b.log").touch()
    found = find(logs / "deep/b.log", logs / "app.log", logs / "./app.log", logs / "*.log", roots=logs)
    assert found.folders.paths == [str(logs)]
    assert named(found) == [f"{logs}/deep/b.log", f"{logs}/app.log", f"{logs}/*.log"]


def test_a_relative_path_is_relative_to_the_working_directory(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(logs)
    assert named(find("app.log", "./app.log", "../logs/app.log", roots=logs)) == [f"{logs}/app.log"]
    with pytest.raises(LogPathRefused):
        find("../secret", roots=logs)


def test_a_tilde_is_a_name_like_any_other(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(logs)
    monkeypatch.setenv("HOME", str(logs.parent))
    with pytest.raises(ConfigurationError, match="no folder"):
        find("~/secret", roots=logs)


def test_a_link_to_a_folder_is_followed_before_it_is_checked(logs: Path) -> None:
    (logs.parent / "alias").symlink_to(logs)
    found = find(logs.parent / "alias/app.log", roots=logs)
    assert named(found) == [f"{logs}/app.log"]
    assert named(find(logs / "app.log", roots=logs.parent / "alias")) == [f"{logs}/app.log"]


def test_a_link_beside_its_target_needs_no_more_than_its_folder(logs: Path) -> None:
    (logs / "current.log").symlink_to("app.log")
    found = find(logs / "current.log", roots=logs)
    assert (named(found), found.folders.paths) == ([f"{logs}/current.log"], [str(logs)])


@pytest.mark.parametrize("asked", ["web.log", "*.log", "w?b.log"])
def test_the_root_that_a_link_leads_to_is_mounted_too(logs: Path, asked: str) -> None:
    pods = logs.parent / "pods"
    (pods / "p1").mkdir(parents=True)
    (pods / "p1/0.log").touch()
    (logs / "web.log").symlink_to(pods / "p1/0.log")
    found = find(logs / asked, roots=[logs, pods])
    assert sorted(found.folders.paths) == [str(logs), str(pods)]


def test_every_link_of_a_chain_can_be_followed_in_the_container(logs: Path) -> None:
    for name in ("pods", "containers"):
        (logs.parent / name).mkdir()
    (logs.parent / "containers/c.log").touch()
    (logs.parent / "pods/0.log").symlink_to("../containers/c.log")
    (logs / "web.log").symlink_to(logs.parent / "pods/0.log")
    roots = [logs, logs.parent / "pods", logs.parent / "containers"]
    assert sorted(find(logs / "web.log", roots=roots).folders.paths) == sorted(map(str, roots))
    with pytest.raises(LogPathRefused, match="through"):
        find(logs / "web.log", roots=[roots[0], roots[2]])


def test_a_pattern_passes_a_link_that_leads_out_over_to_the_guest(logs: Path) -> None:
    (logs / "evil.log").symlink_to("/etc/passwd")
    (logs / "loop.log").symlink_to("loop.log")
    assert find(logs / "*.log", roots=logs).folders.paths == [str(logs)]


@pytest.mark.parametrize("glob", [None, False])
def test_a_name_with_the_signs_of_a_pattern_is_a_name_where_there_is_such_a_file(
    logs: Path, glob: bool | None
) -> None:
    for name in ("a[1].log", "-x *.log", "new\nline?.log"):
        (logs / name).touch()
        assert find(logs / name, roots=logs, glob=glob).paths == (TailPath(f"{logs}/{name}"),)
        assert find(logs / name, roots=logs, glob=True).paths == (
            TailPath(f"{logs}/{name}", is_pattern=True),
        )


def test_a_pattern_of_folders_begins_where_its_names_end(logs: Path) -> None:
    (logs / "a").mkdir()
    found = find(logs / "a/*/x.log", roots=logs)
    assert found.folders.paths == [f"{logs}/a"]
    assert found.paths == (TailPath(f"{logs}/a/*/x.log", is_pattern=True),)


def test_where_too_many_folders_would_be_mounted_their_roots_are(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths_module, "MAX_MOUNTS", 3)
    for n in range(5):
        (logs / f"d{n}").mkdir()
        (logs / f"d{n}/x.log").touch()
    assert find(*(logs / f"d{n}/x.log" for n in range(5)), roots=logs).folders.paths == [str(logs)]


# What may not.


@pytest.mark.parametrize(
    "asked",
    [
        "{logs}/../secret", "{logs}/../logs-other/x.log", "{logs}-other/x.log", "{logs}/a/../../secret", "/etc/passwd",
        "{logs}/evil.log", "{logs}/evil/passwd", "{logs}/evil/*", "{logs}/../*", "{logs}-other/*", "/*", "{logs}/gone.log",
        "/proc/self/environ", "/sys/kernel/notes", "/dev/null", "{logs}/proc.log", "{logs}/relative.log", "/",
        "{logs}/*/../../secret", "{logs}/**/../x", "{logs}/*/./x", "{logs}/*/", "//etc/passwd", "{logs}/loop.log",
    ],
)  # fmt: skip
@pytest.mark.parametrize("follow", [False, True])
def test_a_path_that_leads_out_is_refused(logs: Path, asked: str, follow: bool) -> None:
    (logs / "evil.log").symlink_to("/etc/passwd")
    (logs / "evil").symlink_to("/etc")
    (logs / "gone.log").symlink_to("/nonexistent/x")
    (logs / "proc.log").symlink_to("/proc/self/environ")
    (logs / "relative.log").symlink_to("../secret")
    (logs / "loop.log").symlink_to("loop.log")
    with pytest.raises(LogPathRefused, match="may not be read") as refused:
        find(asked.format(logs=logs), roots=logs, follow=follow)
    assert isinstance(refused.value, CapabilityDenied)
    assert asked.format(logs=logs) in str(refused.value)


@pytest.mark.parametrize("root", ["/proc", "/sys", "/dev", "/run", "/etc", "/proc/self"])
def test_system_folders_are_refused_whatever_was_granted(root: str) -> None:
    with pytest.raises(LogPathRefused):
        find(f"{root}/anything.log", roots=root, follow=True)
    with pytest.raises(LogPathRefused):
        find(f"{root}/*", roots=root)


def test_what_is_no_regular_file_is_refused_without_opening_it(logs: Path) -> None:
    os.mkfifo(logs / "pipe")
    (logs / "deep").mkdir()
    (logs / "folder.log").symlink_to("deep")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(logs / "s.log"))
        for name, what in {
            "pipe": "a FIFO",
            "s.log": "a socket",
            "deep": "folder",
            "folder.log": "folder",
        }.items():
            with pytest.raises(LogPathRefused, match=what):
                find(logs / name, roots=logs, follow=True)
    for name in ("", ".", "deep/", "deep/..", "deep/."):
        with pytest.raises(LogPathRefused, match="folder"):
            find(f"{logs}/{name}", roots=logs)


def test_a_file_that_is_not_there_is_waited_for_or_an_error(logs: Path) -> None:
    (logs / "later.log").symlink_to("none.log")
    for name in ("none.log", "later.log"):
        assert named(find(logs / name, roots=logs, follow=True)) == [f"{logs}/{name}"]
        with pytest.raises(ConfigurationError, match="follow=True"):
            find(logs / name, roots=logs)
    for name in ("none/x.log", "none/*.log", "app.log/x"):
        with pytest.raises(ConfigurationError, match="no folder"):
            find(logs / name, roots=logs, follow=True)


def test_without_a_root_nothing_is_looked_at() -> None:
    with pytest.raises(LogPathRefused, match=r"Grants.of\(ReadLogs"):
        find_paths(["/nonexistent"], ReadLogs(), is_glob=None, follow=False)


def test_a_name_that_no_frame_can_say_is_refused(logs: Path) -> None:
    with pytest.raises(ConfigurationError, match="UTF-8"):
        find(f"{logs}/\udc80.log", roots=logs, follow=True)


names = st.sampled_from(
    ["logs", "logs-other", "secret", "a", "..", ".", "link", "out", "*", "?.log", "x.log"]
)


@given(parts=st.lists(names, max_size=6), follow=st.booleans(), glob=st.none() | st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_path_at_all_has_anything_else_mounted(
    logs: Path, parts: list[str], follow: bool, glob: bool | None
) -> None:
    (logs / "a").mkdir(exist_ok=True)
    for link, target in {"link": "a", "out": "..", "a/x.log": "../../secret"}.items():
        if not (logs / link).is_symlink():
            (logs / link).symlink_to(target)
    try:
        found = find(f"{logs}/" + "/".join(parts), roots=logs, follow=follow, glob=glob)
    except (LogPathRefused, ConfigurationError):
        return
    assert all(is_inside(path, str(logs)) for path in (*found.folders.paths, *named(found)))


# The folders are held, and checked again when they have been opened.


def _seen(path: Path) -> MountIdentity:
    status = path.stat()
    return MountIdentity(str(path), status.st_dev, status.st_ino)


def test_the_folder_that_was_checked_must_be_the_one_that_was_mounted(logs: Path) -> None:
    folders = pinned([str(logs)])
    folders.check_opened([_seen(logs)])
    logs.rename(logs.with_name("moved"))
    logs.mkdir()
    with pytest.raises(LogPathRefused, match="replaced"):
        folders.check_opened([_seen(logs)])
    with pytest.raises(LogPathRefused, match="replaced"):
        folders.check_opened([])
    folders.close()
    folders.close()


def _seen_in_gvisor(path: Path) -> MountIdentity:
    """Return what a guest says whose kernel numbers everything itself."""
    status = path.stat()
    return MountIdentity(
        str(path),
        11,
        1,
        mode=status.st_mode,
        owner=status.st_uid,
        group=status.st_gid,
        changed_ns=status.st_ctime_ns,
    )


def test_without_numbers_the_folder_is_told_by_its_last_change(logs: Path) -> None:
    checked_ns = logs.stat().st_ctime_ns
    folders = pinned([str(logs)])
    (logs / "written.log").write_text("meanwhile")
    seen = _seen_in_gvisor(logs)
    (logs / "afterwards.log").write_text("and then")
    folders.check_opened([seen], by_number=False)
    for changed in (
        msgspec.structs.replace(seen, changed_ns=logs.stat().st_ctime_ns + 1),
        msgspec.structs.replace(seen, changed_ns=checked_ns - 1),
        msgspec.structs.replace(seen, mode=0o40777),
        msgspec.structs.replace(seen, owner=seen.owner + 1),
    ):
        with pytest.raises(LogPathRefused, match="replaced"):
            folders.check_opened([changed], by_number=False)
    logs.rename(logs.with_name("moved"))
    logs.symlink_to(logs.with_name("moved"))
    with pytest.raises(LogPathRefused, match="replaced"):
        folders.check_opened([seen], by_number=False)
    folders.close()


def test_a_link_that_is_put_in_a_folders_place_is_not_followed(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swapped(paths: Any) -> LogFolders:
        asked = list(paths)
        logs.rename(logs.with_name("moved"))
        logs.symlink_to("/etc")
        return pinned(asked)

    monkeypatch.setattr(paths_module, "pinned", swapped)
    with pytest.raises(LogPathRefused, match="replaced while it was checked"):
        find(logs / "app.log", roots=logs)


def test_a_folder_on_another_mount_is_mounted_for_itself(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (logs / "a").mkdir()
    assert pinned([str(logs / "a"), str(logs)]).paths == [str(logs)]
    monkeypatch.setattr(folders_module.PinnedFolder, "mount_id", property(lambda self: self.path))
    assert pinned([str(logs / "a"), str(logs)]).paths == [str(logs), str(logs / "a")]


def test_a_held_folder_leaves_no_descriptor_behind(logs: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    held = PinnedFolder(str(logs))
    assert held.mount_id is not None
    del held
    find(logs / "app.log", roots=logs)
    with pytest.raises(LogPathRefused):
        pinned([str(logs), str(logs / "none")])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
