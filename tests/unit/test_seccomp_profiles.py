"""Our seccomp profile says what it should, before any container runs under it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from aeolus_sandbox.resources import shipped_folder

FOLDER: Final = shipped_folder("seccomp")
DATA: Final = Path(__file__).parents[1] / "data"
DOCKER_ALLOWS: Final = frozenset(
    line
    for line in (DATA / "docker_default_syscalls.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
NAMESPACE_FLAGS: Final = 0x7E020000
LOW_32_BITS: Final = 0xFFFFFFFF

FILTERED_BY_ARGUMENT: Final = {"clone", "ioctl", "mknod", "mknodat", "personality", "socket", "socketpair"}
NOT_UNCONDITIONAL_IN_DOCKER: Final = {
    "arch_prctl": "Docker allows it on x86-64, the only architecture of ours that has it",
    "clone": "Docker filters it by the same mask of flags",
    "clone3": "refused here as there, with ENOSYS",
    "personality": "Docker allows these values and three more",
    "socket": "Docker filters it by address family too, less tightly",
}
DANGEROUS: Final = """
acct add_key adjtimex bpf chroot clock_adjtime clock_settime delete_module fanotify_init fanotify_mark
finit_module fsconfig fsmount fsopen fspick get_mempolicy init_module io_setup io_submit io_uring_enter
io_uring_register io_uring_setup ioperm iopl ioprio_set kcmp kexec_file_load kexec_load keyctl lookup_dcookie
mbind memfd_secret migrate_pages mlockall modify_ldt mount mount_setattr move_mount move_pages mq_open msgget
msgsnd name_to_handle_at nfsservctl open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root
process_madvise process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot remap_file_pages
request_key semget set_mempolicy setdomainname sethostname setns settimeofday shmget socketcall stime swapoff
swapon sync syncfs sysfs syslog tee umount umount2 unshare uselib userfaultfd ustat vhangup vm86 vm86old vmsplice
"""


@pytest.fixture(name="profile", params=sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def _profile(request: pytest.FixtureRequest) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(request.param.read_text())
    return loaded


def groups_of(profile: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Gives the groups of a profile that name a call."""
    return [group for group in profile["syscalls"] if name in group["names"]]


def conditions_on(profile: dict[str, Any], name: str) -> set[tuple[tuple[int, int, int], ...]]:
    """Gives the argument filters of a call, each as (argument, mask, value) triples; every one must be masked."""
    found = set()
    for group in groups_of(profile, name):
        assert {arg["op"] for arg in group["args"]} == {"SCMP_CMP_MASKED_EQ"}
        found.add(tuple((arg["index"], arg["value"], arg["valueTwo"]) for arg in group["args"]))
    return found


def test_default_profile_ships() -> None:
    assert (FOLDER / "default.json").is_file()


def test_what_is_not_listed_is_denied_with_eperm(profile: dict[str, Any]) -> None:
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert profile["defaultErrnoRet"] == 1


def test_only_native_64_bit_calls_are_ways_in(profile: dict[str, Any]) -> None:
    architectures = {entry["architecture"]: entry["subArchitectures"] for entry in profile["archMap"]}
    assert architectures == {"SCMP_ARCH_X86_64": [], "SCMP_ARCH_AARCH64": []}
    assert "architectures" not in profile


def test_every_group_says_who_needs_it(profile: dict[str, Any]) -> None:
    comments = [group["comment"] for group in profile["syscalls"]]
    assert [comment for comment in comments if len(comment.split()) < 4] == []
    assert [comment for comment, count in Counter(comments).items() if count > 1] == []


def test_groups_only_allow_except_for_clone3(profile: dict[str, Any]) -> None:
    others = [group for group in profile["syscalls"] if group["action"] != "SCMP_ACT_ALLOW"]
    assert [(group["names"], group["action"], group["errnoRet"]) for group in others] == [
        (["clone3"], "SCMP_ACT_ERRNO", 38)
    ]


def test_no_call_opens_up_with_a_capability_or_a_kernel_version(profile: dict[str, Any]) -> None:
    known = {"comment", "names", "action", "args", "errnoRet"}
    assert [group for group in profile["syscalls"] if set(group) - known] == []


def test_no_call_is_named_twice_unless_its_arguments_are_filtered(profile: dict[str, Any]) -> None:
    counts = Counter(name for group in profile["syscalls"] for name in group["names"])
    assert {name for name, count in counts.items() if count > 1} <= FILTERED_BY_ARGUMENT
    with_arguments = {name for group in profile["syscalls"] if "args" in group for name in group["names"]}
    without = {name for group in profile["syscalls"] if "args" not in group for name in group["names"]}
    assert with_arguments == FILTERED_BY_ARGUMENT
    assert with_arguments & without == set()  # an unfiltered mention would undo the filter


def test_a_group_filters_each_argument_once(profile: dict[str, Any]) -> None:
    # The OCI specification joins conditions with "and"; runc takes two on one argument as "or".
    for group in profile["syscalls"]:
        indexes = [arg["index"] for arg in group.get("args", [])]
        assert len(indexes) == len(set(indexes)), group["comment"]


def test_profile_allows_nothing_that_docker_refuses(profile: dict[str, Any]) -> None:
    assert len(DOCKER_ALLOWS) > 300
    allowed = {name for group in profile["syscalls"] for name in group["names"]}
    assert allowed - DOCKER_ALLOWS == set(NOT_UNCONDITIONAL_IN_DOCKER)


@pytest.mark.parametrize("name", DANGEROUS.split())
def test_dangerous_call_is_not_allowed(name: str, profile: dict[str, Any]) -> None:
    assert groups_of(profile, name) == []


def test_clone_makes_no_namespaces(profile: dict[str, Any]) -> None:
    assert conditions_on(profile, "clone") == {((0, NAMESPACE_FLAGS, 0),)}


def test_personality_cannot_turn_protections_off(profile: dict[str, Any]) -> None:
    assert conditions_on(profile, "personality") == {((0, LOW_32_BITS, 0),), ((0, LOW_32_BITS, 0xFFFFFFFF),)}


def test_only_usual_sockets_can_be_opened(profile: dict[str, Any]) -> None:
    unix, inet, inet6, netlink = 1, 2, 10, 16
    stream, datagram, any_protocol, tcp, udp = 1, 2, 0, 6, 17
    internet = {
        ((0, LOW_32_BITS, family), (1, 0xF, kind), (2, LOW_32_BITS, protocol))
        for family in (inet, inet6)
        for kind, protocol in (
            (stream, any_protocol),
            (stream, tcp),
            (datagram, any_protocol),
            (datagram, udp),
        )
    }
    local = {((0, LOW_32_BITS, unix),)}
    assert conditions_on(profile, "socket") == internet | local | {
        ((0, LOW_32_BITS, netlink), (2, LOW_32_BITS, 0))
    }
    assert conditions_on(profile, "socketpair") == local


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (0x5412, "TIOCSTI"),
        (0x541C, "TIOCLINUX"),
        (0x5423, "TIOCSETD"),
        (0x4B4E, "KDSKBENT"),
        (0x8946, "SIOCETHTOOL"),
    ],
)
def test_ioctl_that_reaches_into_a_terminal_or_device_is_not_listed(
    command: int, name: str, profile: dict[str, Any]
) -> None:
    commands = conditions_on(profile, "ioctl")
    # The kernel looks at the low half only: a filter that compared all 64 bits would be fooled by a high one.
    assert {mask for ((index, mask, _),) in commands} == {LOW_32_BITS}
    assert command not in {value for ((_, _, value),) in commands}, name


def test_ioctl_comment_names_the_command_it_allows(profile: dict[str, Any]) -> None:
    for group in groups_of(profile, "ioctl"):
        assert f"{group['args'][0]['valueTwo']:#x}:" in group["comment"]


@pytest.mark.parametrize(("name", "argument"), [("mknod", 1), ("mknodat", 2)])
def test_mknod_makes_named_pipes_only(name: str, argument: int, profile: dict[str, Any]) -> None:
    assert conditions_on(profile, name) == {((argument, 0o170000, 0o010000),)}
