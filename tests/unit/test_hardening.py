"""Every barrier is in the specification of every container, and no profile can take one away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.engine.base import ContainerSpec, ReadOnlyMount
from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.hardening import container_spec
from aeolus_sandbox.limits import MIB, Limits
from aeolus_sandbox.profiles import Mount, SandboxProfile
from aeolus_sandbox.streaming.tool import IsolationMode


def _spec(profile: SandboxProfile, limits: Limits | None = None) -> ContainerSpec:
    return container_spec(
        profile,
        image="aeolus/shell:1",
        argv=("sh",),
        limits=limits or Limits(),
        labels={"aeolus.owner": "me"},
        seccomp='{"defaultAction": "SCMP_ACT_ERRNO"}',
    )


def test_the_specification_of_a_default_container() -> None:
    assert _spec(SandboxProfile(image="shell")).model_dump() == {
        "image": "aeolus/shell:1",
        "argv": ("sh",),
        "env": {"HOME": "/workspace", "TMPDIR": "/tmp", "LANG": "C.UTF-8"},
        "working_dir": "/workspace",
        "user": "10001:10001",
        "tty": False,
        "labels": {"aeolus.owner": "me"},
        "memory_bytes": 1024 * MIB,
        "cpus": 1.0,
        "pids": 128,
        "open_files": 1024,
        "file_bytes": 256 * MIB,
        "tmpfs": (
            {"path": "/tmp", "size_bytes": 64 * MIB, "mode": 0o1777, "executable": True},
            {"path": "/workspace", "size_bytes": 256 * MIB, "mode": 0o700, "executable": True},
        ),
        "mounts": (),
        "groups": (),
        "read_only_root": True,
        "dropped_capabilities": ("ALL",),
        "no_new_privileges": True,
        "seccomp": '{"defaultAction": "SCMP_ACT_ERRNO"}',
        "network": "empty",
        "runtime": None,
    }


def test_gvisor_changes_the_runtime_and_counts_its_threads_and_nothing_else() -> None:
    profile, limits = SandboxProfile(image="shell"), Limits(pids=64)
    usual = _spec(profile, limits).model_dump()
    spec = container_spec(
        profile,
        image="aeolus/shell:1",
        argv=("sh",),
        limits=limits,
        labels={"aeolus.owner": "me"},
        seccomp='{"defaultAction": "SCMP_ACT_ERRNO"}',
        isolation=IsolationMode.GVISOR,
    )
    assert spec.model_dump() == usual | {"runtime": "runsc", "pids": 128 + 10 * 64}


def test_an_image_of_others_has_no_network_either_and_names_from_the_engine() -> None:
    spec = container_spec(
        SandboxProfile(image="debian:12"),
        image="debian:12",
        argv=("sh",),
        limits=Limits(),
        labels={},
        seccomp="{}",
    )
    assert spec.network == "none"


def test_a_tool_in_process_has_no_specification() -> None:
    with pytest.raises(ConfigurationError, match="in_process"):
        container_spec(
            SandboxProfile(image="shell"),
            image="aeolus/shell:1",
            argv=("sh",),
            limits=Limits(),
            labels={},
            seccomp="",
            isolation=IsolationMode.IN_PROCESS,
        )


@given(
    tty=st.booleans(),
    argv=st.none() | st.lists(st.text(max_size=5), max_size=3).map(tuple),
    target=st.sampled_from(["/logs", "/data/x"]),
    pids=st.integers(8, 500),
)
def test_no_profile_and_no_limit_takes_a_barrier_away(
    tty: bool, argv: tuple[str, ...] | None, target: str, pids: int
) -> None:
    profile = SandboxProfile(
        image="shell", tty=tty, argv=argv, mounts=(Mount(source="/srv/data", target=target),)
    )
    spec = _spec(profile, Limits(pids=pids))
    assert spec.read_only_root
    assert spec.no_new_privileges
    assert spec.dropped_capabilities == ("ALL",)
    assert spec.network == "empty"
    assert spec.seccomp
    assert not spec.user.startswith(("0", "root"))
    assert spec.pids == pids
    assert {each.path for each in spec.tmpfs} == {"/tmp", "/workspace"}
    assert all(each.size_bytes > 0 for each in spec.tmpfs)
    assert spec.mounts == (ReadOnlyMount(source="/srv/data", target=target),)


def test_a_terminal_says_what_it_is() -> None:
    assert _spec(SandboxProfile(image="shell", tty=True)).env["TERM"] == "xterm-256color"


@pytest.mark.parametrize(
    "source",
    ["/", "//", "/proc", "/proc/", "/sys", "/dev", "/run", "/var/run", "/etc", "/root", "/boot", "relative", "", ".",
     "/a/../etc", "/a/./b", "/var/run/docker.sock", "/run/user/1/x.sock", "/../etc", "/etc/", "//etc", "/proc//", "/dev/shm",
     "/proc/1/root", "/run/docker", "/sys/fs", "/var/run/x", "/var//run"],
)  # fmt: skip
def test_a_mount_that_is_a_way_out_is_refused(source: str) -> None:
    with pytest.raises(ConfigurationError):
        _spec(SandboxProfile(image="shell", mounts=(Mount(source=source, target="/logs"),)))


@pytest.mark.parametrize("group", [0, -1, 2**32 - 1])
def test_a_group_that_is_roots_or_none_is_refused(group: int) -> None:
    with pytest.raises(ConfigurationError, match="cannot be a group"):
        _spec(SandboxProfile(image="shell", groups=(group,)))


def test_groups_are_passed_on() -> None:
    assert _spec(SandboxProfile(image="shell", groups=(4, 999))).groups == (4, 999)


@pytest.mark.parametrize("target", ["logs", "", "/a/../b", "../x"])
def test_a_target_that_is_not_a_plain_path_is_refused(target: str) -> None:
    with pytest.raises(ConfigurationError, match="not an absolute"):
        _spec(SandboxProfile(image="shell", mounts=(Mount(source="/srv", target=target),)))


@pytest.mark.parametrize(
    "source",
    ["/srv/data", "/var/log", "/root/project", "/running", "/home/me/project", "/etcetera", "/srv/..data"],
)
def test_a_folder_with_data_can_be_mounted(source: str) -> None:
    spec = _spec(SandboxProfile(image="shell", mounts=(Mount(source=f"{source}/", target="/logs"),)))
    assert spec.mounts == (ReadOnlyMount(source=source, target="/logs"),)
