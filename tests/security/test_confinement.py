"""What untrusted code cannot reach: the host, its neighbours, and more rights than it has."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from aeolus_sandbox import CommandPolicy, SessionManager, TerminalTool, Text
from aeolus_sandbox.engine.image_catalog import image_reference
from tests.integration.running import open_command, read_until, run_command
from tests.security.conftest import ERRNO_OF, MOUNTS, Probe

pytestmark = pytest.mark.docker


# Files.


async def test_root_file_system_is_read_only(probe: Probe) -> None:
    answer = await probe(
        f"{ERRNO_OF}{MOUNTS}\n"
        "folders = ['/', '/etc', '/usr', '/usr/bin', '/var', '/home', '/root', '/opt', '/run', '/lib', '/var/tmp']\n"
        "flags = os.O_CREAT | os.O_WRONLY\n"
        "answer = [mounts['/']['options'], {f: tried(os.open, f + '/x', flags) for f in folders}]"
    )
    options, folders = answer
    assert "ro" in options
    assert set(folders.values()) <= {"EROFS", "EACCES"}
    assert folders["/"] in {"EROFS", "EACCES"}


async def test_only_the_sized_file_systems_can_be_written(probe: Probe) -> None:
    answer = await probe(
        "import os\nanswer = []\n"
        "for folder, names, _ in os.walk('/'):\n"
        "    if folder.startswith(('/proc', '/sys')): names[:] = []; continue\n"
        "    if os.access(folder, os.W_OK): answer.append(folder); names[:] = []"
    )
    assert set(answer) <= {"/tmp", "/workspace", "/dev/shm", "/dev/mqueue"}
    assert {"/tmp", "/workspace"} <= set(answer)


async def test_file_systems_in_memory_are_sized_and_honour_no_setuid_and_no_devices(probe: Probe) -> None:
    mounts = await probe(f"{MOUNTS}\nanswer = mounts")
    for point in ("/tmp", "/workspace", "/dev/shm"):
        assert mounts[point]["type"] == "tmpfs"
        assert {"nosuid", "nodev"} <= set(mounts[point]["options"])
    sizes = await probe(
        "import os\nanswer = {}\nfor point in ('/tmp', '/workspace', '/dev/shm'):\n"
        "    s = os.statvfs(point); answer[point] = s.f_blocks * s.f_frsize"
    )
    assert sizes == {"/tmp": 64 << 20, "/workspace": 256 << 20, "/dev/shm": 16 << 20}


async def test_no_folder_of_the_host_is_mounted(probe: Probe) -> None:
    mounts = await probe(f"{MOUNTS}\nanswer = mounts")
    host_backed = {
        point for point, mount in mounts.items() if mount["source"].startswith("/dev/") and point != "/"
    }
    # The engine's own three small files, which it makes for each container; and its init.
    assert host_backed <= {
        "/etc/resolv.conf",
        "/etc/hostname",
        "/etc/hosts",
        "/sbin/docker-init",
        "/usr/sbin/docker-init",
    }
    for point in host_backed:
        assert "ro" in mounts[point]["options"], mounts[point]


async def test_files_of_the_host_are_invisible(probe: Probe, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    secret.chmod(0o644)
    here = [str(secret), f"/proc/{os.getpid()}/root{secret}", f"/proc/1/root{secret}", str(Path(__file__))]
    answer = await probe(f"{ERRNO_OF}\nanswer = [tried(open, path) for path in {here!r}]")
    assert set(answer) <= {"ENOENT", "EACCES"}


async def test_links_in_the_workspace_lead_nowhere_outside(probe: Probe, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    up = "../" * 20
    answer = await probe(
        f"{ERRNO_OF}\n"
        f"for n, target in enumerate([{str(secret)!r}, {up + str(secret)!r}, '/proc/1/cwd/x', '/proc/1/root/etc/shadow']):\n"
        "    os.symlink(target, f'/workspace/link{n}')\n"
        "answer = [tried(open, f'/workspace/link{n}') for n in range(4)]\n"
        "answer.append(tried(os.link, '/etc/passwd', '/workspace/hard'))\n"
        "answer.append(tried(open, '/workspace/link0', 'w'))"
    )
    assert "allowed" not in answer
    assert secret.read_text() == "of the host"


async def test_engine_socket_is_not_inside(probe: Probe) -> None:
    answer = await probe(
        "import os, stat\nanswer = []\n"
        "for folder, names, files in os.walk('/'):\n"
        "    if folder.startswith(('/proc', '/sys')): names[:] = []; continue\n"
        "    for name in files:\n"
        "        path = os.path.join(folder, name)\n"
        "        if stat.S_ISSOCK(os.lstat(path).st_mode): answer.append(path)"
    )
    assert answer == []


@pytest.mark.parametrize("image", ["shell", "python"])
async def test_image_has_no_file_that_raises_rights(probe: Probe, image: str) -> None:
    answer = await probe(
        "import os, stat\nanswer = []\n"
        "for folder, names, files in os.walk('/'):\n"
        "    if folder.startswith(('/proc', '/sys')): names[:] = []; continue\n"
        "    for name in files:\n"
        "        path = os.path.join(folder, name); mode = os.lstat(path).st_mode\n"
        "        raises = stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID)\n"
        "        if raises or 'security.capability' in os.listxattr(path, follow_symlinks=False):\n"
        "            answer.append(path)",
        image=image,
    )
    assert answer == []


# Rights.


async def test_user_is_nobody_and_cannot_become_root(probe: Probe) -> None:
    answer = await probe(
        f"{ERRNO_OF}\nids = [os.getresuid(), os.getresgid(), os.getgroups()]\n"
        "answer = [ids, tried(os.setuid, 0), tried(os.setgid, 0), tried(os.setgroups, [0])]"
    )
    (users, groups, others), *refusals = answer
    assert set(users) == {10001}
    assert set(groups) == {10001}
    assert set(others) <= {10001}
    assert set(refusals) == {"EPERM"}


async def test_no_capabilities_no_new_privileges_and_a_filter(probe: Probe) -> None:
    status = await probe(
        "answer = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())"
    )
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"


@pytest.fixture
def image_with_setuid_program() -> Iterator[str]:
    """Give an image that has a setuid-root Python, as somebody else's image may."""
    client = docker.from_env()
    tag = f"aeolus-test-setuid:{uuid.uuid4().hex}"
    script = "cp /usr/bin/python3 /usr/bin/raised && chown 0:0 /usr/bin/raised && chmod 6755 /usr/bin/raised"
    maker = client.containers.create(
        image_reference("shell"),
        ["sh", "-c", script],
        user="0:0",
        network_mode="none",
        labels={"aeolus.test": tag},
    )
    try:
        maker.start()
        assert maker.wait(timeout=60)["StatusCode"] == 0
        maker.commit(*tag.split(":"))
    finally:
        maker.remove(force=True)
    try:
        yield tag
    finally:
        client.images.remove(tag, force=True)
        client.close()


async def test_setuid_program_of_an_image_raises_nothing(
    manager: SessionManager, image_with_setuid_program: str
) -> None:
    outcome = await run_command(
        manager,
        "stat -c %a:%u /usr/bin/raised; raised -c 'import os; print(os.geteuid(), os.getegid())'",
        tool=TerminalTool(image=image_with_setuid_program),
        tty=False,
    )
    assert outcome.text.split() == ["6755:0", "10001", "10001"], outcome.text


async def test_file_systems_cannot_be_mounted_nor_namespaces_made(probe: Probe) -> None:
    answer = await probe(
        f"{ERRNO_OF}\nimport ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def call(name, *arguments):\n"
        "    if getattr(libc, name)(*arguments) == 0: return 'allowed'\n"
        "    return errno.errorcode[ctypes.get_errno()]\n"
        "answer = [call('mount', b'none', b'/tmp', b'tmpfs', 0, None), call('umount', b'/workspace'),\n"
        "    call('unshare', 0x10000000), call('unshare', 0x00020000), call('chroot', b'/tmp'),\n"
        "    call('setns', os.open('/proc/self/ns/mnt', 0), 0)]"
    )
    assert set(answer) == {"EPERM"}


async def test_kernel_cannot_be_told_anything(probe: Probe) -> None:
    paths = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",
        "/proc/bus/pci/devices",
        "/sys/kernel/uevent_helper",
        "/sys/kernel/profiling",
        "/sys/power/state",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/pids/pids.max",
        "/dev/kmsg",
        "/dev/mem",
    ]
    answer = await probe(f"{ERRNO_OF}\nanswer = {{p: tried(os.open, p, os.O_WRONLY) for p in {paths!r}}}")
    assert set(answer.values()) <= {"EROFS", "EACCES", "ENOENT", "EPERM"}, answer


async def test_proc_and_sys_are_read_only_and_masked(probe: Probe) -> None:
    answer = await probe(
        f"{MOUNTS}\nimport os\n"
        "empty = {p: os.path.exists(p) and (os.listdir(p) if os.path.isdir(p) else open(p, 'rb').read(1).decode())\n"
        "    for p in ('/proc/acpi', '/proc/kcore', '/proc/keys', '/proc/timer_list', '/proc/scsi', '/sys/firmware')}\n"
        "points = ('/sys', '/proc/sys', '/proc/sysrq-trigger', '/proc/irq', '/proc/bus', '/proc/fs')\n"
        "answer = [mounts, empty, [point for point in points if os.path.exists(point)]]"
    )
    mounts, masked, points = answer
    assert {"/sys", "/proc/sys"} <= set(points)
    for point in points:  # not every kernel has them all
        assert "ro" in mounts[point]["options"], point
    assert all(not content for content in masked.values()), masked


async def test_devices_are_the_harmless_ones(probe: Probe) -> None:
    answer = await probe(
        f"{ERRNO_OF}\nimport stat\nfound = []\n"
        "for folder, _, files in os.walk('/dev'):\n"
        "    for name in files:\n"
        "        path = os.path.join(folder, name); mode = os.lstat(path).st_mode\n"
        "        if stat.S_ISBLK(mode): found.append('block:' + path)\n"
        "        if stat.S_ISCHR(mode): found.append(path)\n"
        "makes = [tried(os.mknod, '/tmp/d', stat.S_IFBLK | 0o600, os.makedev(8, 0)),\n"
        "    tried(os.mknod, '/tmp/c', stat.S_IFCHR | 0o600, os.makedev(1, 1))]\n"
        "answer = [found, makes]"
    )
    found, makes = answer
    harmless = {"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts/ptmx", "pts/0"}
    assert {path.removeprefix("/dev/") for path in found} <= harmless
    assert set(makes) == {"EPERM"}


async def test_limits_of_the_process_are_set_and_cannot_be_raised(probe: Probe) -> None:
    answer = await probe(
        "import resource\nanswer = [resource.getrlimit(resource.RLIMIT_CORE)]\n"
        "try:\n    resource.setrlimit(resource.RLIMIT_CORE, (-1, -1)); answer.append('allowed')\n"
        "except (ValueError, OSError):\n    answer.append('refused')"
    )
    assert answer == [[0, 0], "refused"]


async def test_crash_leaves_no_core_file(manager: SessionManager) -> None:
    outcome = await run_command(
        manager,
        "python3 -c 'import ctypes; ctypes.string_at(0)'; echo rc=$?; find /workspace /tmp -type f",
        tty=False,
    )
    assert outcome.stdout == b"rc=139\n"


# Neighbours, and what leaks.


async def test_processes_of_the_host_are_invisible(probe: Probe) -> None:
    answer = await probe(
        f"{ERRNO_OF}\npids = [int(name) for name in os.listdir('/proc') if name.isdigit()]\n"
        f"answer = [open('/proc/1/comm').read().strip(), len(pids), tried(os.kill, {os.getpid()}, 0)]"
    )
    first, count, kill = answer
    assert "init" in first
    assert count < 10
    assert kill == "ESRCH"


async def test_processes_and_memory_of_a_neighbour_are_invisible(
    manager: SessionManager, probe: Probe
) -> None:
    marker = uuid.uuid4().hex
    neighbour = await open_command(
        manager, f"echo {marker} > /dev/shm/m; echo {marker} > /tmp/m; echo up; sleep 300; :"
    )
    await read_until(neighbour, "up")
    answer = await probe(
        "import os\nfound = [os.listdir('/dev/shm'), os.listdir('/tmp'), os.listdir('/workspace')]\n"
        "lines = [open(f'/proc/{p}/cmdline', 'rb').read().decode() for p in os.listdir('/proc') if p.isdigit()]\n"
        f"answer = [found, any({marker[:16]!r} + {marker[16:]!r} in line for line in lines)]"
    )
    assert answer == [[[], [], []], False]
    assert neighbour.status is None


async def test_killing_everything_inside_touches_no_neighbour(manager: SessionManager) -> None:
    neighbour = await open_command(manager, "echo up; read -r answer; echo heard $answer")
    await read_until(neighbour, "up")
    outcome = await run_command(
        manager,
        "(kill -9 -1); echo not reached",  # it spares its caller
        tool=TerminalTool(command_policy=CommandPolicy.ALLOW),
    )
    assert outcome.result.status.reason == "killed"
    await neighbour.send_stdin(Text("me\n"))
    await read_until(neighbour, "heard me")


async def test_environment_of_the_host_does_not_leak(
    manager: SessionManager, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = uuid.uuid4().hex
    monkeypatch.setenv("AEOLUS_TEST_SECRET", secret)
    answer = await probe(
        "import os\ntry: init = open('/proc/1/environ', 'rb').read().decode().split('\\0')\n"
        "except PermissionError: init = []\n"
        "answer = [dict(os.environ), init]"
    )
    inside, of_init = answer
    assert secret not in str(answer)
    known = {
        "PATH",
        "LANG",
        "HOME",
        "TMPDIR",
        "HOSTNAME",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "PAGER",
        "GIT_PAGER",
        "LC_CTYPE",
    }
    assert set(inside) <= known
    assert {entry.partition("=")[0] for entry in of_init if entry} <= known
    assert inside["HOSTNAME"] == "sandbox"


async def test_name_of_the_machine_does_not_leak(probe: Probe) -> None:
    assert await probe("import os\nanswer = os.uname().nodename") == "sandbox"
