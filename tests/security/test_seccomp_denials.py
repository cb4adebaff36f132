"""What our seccomp profile stops inside a real container, and what it must leave alone."""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import docker
import pytest

from aeolus_sandbox.engine.image_catalog import image_reference
from aeolus_sandbox.resources import shipped_folder
from tests.security.attackers.syscalls import ATTEMPTS, I386_GETPID, OTHER_ABIS, Attempt

pytestmark = pytest.mark.docker

ATTACKER: Final = Path(__file__).parent / "attackers" / "syscalls.py"
RUN_LIMIT_S: Final = 90
PROFILE: Final = (shipped_folder("seccomp") / "default.json").read_text()

REFUSED: Final = [attempt for attempt in ATTEMPTS if attempt not in OTHER_ABIS]
WITHOUT_CONTROL: Final = {attempt.name for attempt in ATTEMPTS if not attempt.control}
"""Not tried without the filter: the kernel would load a protocol's module for it and keep it. Opening a socket of a
kind that nobody has is answered with EAFNOSUPPORT, EPROTONOSUPPORT or ESOCKTNOSUPPORT, so that EPERM says enough."""
NEWER_THAN_THE_PROFILE: Final = {"statmount", "listmount"}
"""Calls with a higher number than any in the profile. runc answers ENOSYS for these, so that libc takes an older way;
which numbers it counts depends on the engine's libseccomp."""
MAY_BE_NEWER_THAN_LIBSECCOMP: Final = {"memfd_secret", "process_mrelease", "futex_waitv", "cachestat"}
CAPABILITIES: Final = sorted({attempt.needs for attempt in ATTEMPTS if attempt.needs})

Runner = Callable[..., str]
Answers = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def run() -> Iterator[Runner]:
    """Runs a command in a container as hardened as a sandbox is, and gives its output."""
    client = docker.from_env(timeout=RUN_LIMIT_S)
    labels = {"aeolus.test": "seccomp", "aeolus.test.run": uuid.uuid4().hex}

    def in_container(image: str, command: list[str], *, seccomp: str = PROFILE, **changes: Any) -> str:
        hardening: dict[str, Any] = {
            "user": "10001:10001",
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges", f"seccomp={seccomp}"],
        }
        container = client.containers.create(
            image_reference(image),
            command,
            labels=labels,
            network_mode="none",
            ipc_mode="private",
            read_only=True,
            tmpfs={"/tmp": "size=64m,mode=1777", "/workspace": "size=64m,uid=10001,gid=10001"},
            init=True,
            mem_limit="1g",
            pids_limit=256,
            **(hardening | changes),
        )
        try:
            container.start()
            code = container.wait(timeout=RUN_LIMIT_S)["StatusCode"]
            output = container.logs(stdout=True, stderr=False).decode()
            errors = container.logs(stdout=False, stderr=True).decode()
        finally:
            container.remove(force=True)
        assert code == 0, f"exit code {code}\n{output}\n{errors}"
        return output

    try:
        yield in_container
        ours = f"aeolus.test.run={labels['aeolus.test.run']}"
        assert client.containers.list(all=True, filters={"label": ours}) == []
    finally:
        client.close()


def attack(run: Runner, *arguments: str, **changes: Any) -> Answers:
    """Lets the attacker try everything and gives its answers by name."""
    output = run("python", ["python3", "-c", ATTACKER.read_text(), *arguments], **changes)
    answers = [json.loads(line) for line in output.splitlines()]
    return {answer["name"]: answer for answer in answers}


@pytest.fixture(scope="module")
def filtered(run: Runner) -> Answers:
    """What happens under our profile."""
    return attack(run)


@pytest.fixture(scope="module")
def unfiltered(run: Runner) -> Answers:
    """The first control: the same container, without a filter."""
    return attack(run, "control", seccomp="unconfined")


@pytest.fixture(scope="module")
def privileged(run: Runner) -> Answers:
    """The second control: no filter, and the capabilities that the kernel itself asks for."""
    return attack(
        run,
        "control",
        user="0:0",
        userns_mode="host",
        cap_add=CAPABILITIES,
        security_opt=["seccomp=unconfined", "apparmor=unconfined"],
    )


@pytest.mark.parametrize("attempt", REFUSED, ids=lambda attempt: attempt.name)
def test_refused_call_is_stopped_by_the_filter(
    attempt: Attempt, filtered: Answers, unfiltered: Answers, privileged: Answers
) -> None:
    answer = filtered[attempt.name]
    if answer["outcome"] == "absent":
        assert attempt.aarch64 < 0
        return
    assert answer["outcome"] == "errno"
    if attempt.name == "clone3" or attempt.name in NEWER_THAN_THE_PROFILE:
        assert answer["detail"] == "ENOSYS"
    elif attempt.name in MAY_BE_NEWER_THAN_LIBSECCOMP:
        assert answer["detail"] in {"EPERM", "ENOSYS"}
    else:
        assert answer["detail"] == "EPERM"
    # The same call, the same arguments, no filter: the kernel's own answer must be another one.
    control = (privileged if attempt.needs else unfiltered)[attempt.name]
    if attempt.name in WITHOUT_CONTROL:
        assert control["outcome"] == "not tried"
    else:
        assert control["outcome"] in {"allowed", "errno"}
        assert control["detail"] != answer["detail"], f"without the filter too: {control}"


def test_other_abis_are_no_way_around_the_filter(filtered: Answers, unfiltered: Answers) -> None:
    for attempt in OTHER_ABIS:
        answer = filtered[attempt.name]
        assert answer["outcome"] != "allowed"
        if unfiltered[attempt.name]["outcome"] == "allowed":
            assert answer["detail"] == "SIGSYS"
    assert I386_GETPID in filtered


def test_attacker_tries_every_call_on_its_list(filtered: Answers) -> None:
    assert list(filtered) == [attempt.name for attempt in ATTEMPTS]
    assert {answer["outcome"] for answer in filtered.values()} <= {"errno", "signal", "absent"}


def test_engine_loads_a_profile_with_names_it_does_not_know(run: Runner) -> None:
    profile = json.loads(PROFILE)
    profile["syscalls"][0]["names"].append("a_call_of_the_next_decade")
    answers = attack(run, seccomp=json.dumps(profile))
    assert answers["keyctl"]["detail"] == "EPERM"


EVERYDAY_PYTHON: Final = {
    "threads and subprocesses": """
import subprocess, threading
done = []
workers = [threading.Thread(target=done.append, args=(i,)) for i in range(8)]
[w.start() for w in workers]; [w.join() for w in workers]
assert len(done) == 8
assert subprocess.run(["sh", "-c", "echo hi | tr a-z A-Z"], capture_output=True).stdout == b"HI\\n"
""",
    "multiprocessing and shared memory": """
import multiprocessing
from multiprocessing import shared_memory
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
memory = shared_memory.SharedMemory(create=True, size=4096)
memory.buf[0] = 7; memory.close(); memory.unlink()
""",
    "asyncio over unix and loopback sockets": """
import asyncio
async def serve(reader, writer):
    writer.write(await reader.readline()); writer.close()
async def main():
    unix = await asyncio.start_unix_server(serve, "/tmp/everyday.sock")
    tcp = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = tcp.sockets[0].getsockname()[1]
    for connect in (asyncio.open_unix_connection("/tmp/everyday.sock"), asyncio.open_connection("127.0.0.1", port)):
        reader, writer = await connect
        writer.write(b"there and back\\n")
        assert await reader.readline() == b"there and back\\n"
        writer.close()
    unix.close(); tcp.close()
asyncio.run(main())
""",
    "memory maps, events, timers and files": """
import mmap, os, select, shutil, signal, socket, sqlite3, uuid
event, poll = os.eventfd(0), select.epoll()
poll.register(event); os.eventfd_write(event, 1); assert poll.poll(1)
area = mmap.mmap(-1, 4096); area.write(b"x")
os.ftruncate(os.memfd_create("m"), 4096)
open("/tmp/one", "w").write("x"); shutil.copy2("/tmp/one", "/tmp/two"); os.mkfifo("/tmp/fifo")
signal.setitimer(signal.ITIMER_REAL, 0)
os.sched_setaffinity(0, os.sched_getaffinity(0))
assert socket.if_nameindex(); uuid.getnode()
database = sqlite3.connect("/tmp/data.db"); database.execute("pragma journal_mode=wal")
database.execute("create table t(a)"); database.commit()
""",
    "a pty of its own": """
import os, pty
pid, terminal = pty.fork()
if pid == 0:
    os.execvp("tty", ["tty"])
assert b"/dev/pts/" in os.read(terminal, 100)
assert os.waitpid(pid, 0)[1] == 0
""",
    "numpy, pandas and matplotlib": """
import numpy, pandas, matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plot
square = numpy.random.rand(500, 500)
assert (square @ square).shape == (500, 500)
pandas.DataFrame(square).describe()[[0, 1]].plot(); plot.savefig("/tmp/plot.png")
""",
    "a Jupyter kernel over ZeroMQ ipc sockets": """
import jupyter_client
manager = jupyter_client.KernelManager(transport="ipc", ip="/tmp/kernel", kernel_name="python3")
manager.start_kernel()
client = manager.client(); client.start_channels(); client.wait_for_ready(timeout=60)
said = []
client.execute_interactive("print(6 * 7)", timeout=30, output_hook=said.append)
assert "42\\n" in [m["content"].get("text") for m in said]
client.stop_channels(); manager.shutdown_kernel(now=True)
""",
}


@pytest.mark.parametrize("program", EVERYDAY_PYTHON)
def test_everyday_python_runs_under_the_profile(program: str, run: Runner) -> None:
    assert "done" in run("python", ["python3", "-c", EVERYDAY_PYTHON[program] + "\nprint('done')"])


EVERYDAY_SHELL: Final = {
    "pipes, background jobs and signals": """
        mkfifo f; echo through > f & read -r word < f; [ "$word" = through ]
        sleep 30 & kill %1; wait %1 || [ $? = 143 ]
        [ "$(cat <(echo substituted))" = substituted ]
        timeout 0.1 sleep 30 || [ $? = 124 ]""",
    "files": """
        cp -a /etc/passwd p; cp --reflink=auto p q; install -m 600 p r; mv r s; ln s t; ln -s s u; touch -d yesterday p
        tar cf a.tar p q; mkdir x; tar xf a.tar -C x; cmp p x/p; dd if=/dev/zero of=z bs=1M count=2 status=none
        truncate -s 1M z; df . > /dev/null; du -s . > /dev/null; find . -name p | xargs ls -l > /dev/null""",
    "git": """
        git init -q g; cd g; seq 10000 > n; git add n
        git -c user.name=n -c user.email=e commit -qm first; git gc -q; git fsck; git clone -q . ../h; cmp n ../h/n""",
    "the image's tools": """
        [ "$(echo '{"a": 7}' | jq .a)" = 7 ]; rg -q root /etc/passwd; ps aux > /dev/null; free > /dev/null
        less /etc/passwd > /dev/null; curl -sf file:///etc/passwd > /dev/null; seq 99 | xz -T2 | xz -dc | tail -1
        setpriv --dump > /dev/null; nice -n 5 taskset -c 0 true; python3 -c 'print(1)'""",
}


@pytest.mark.parametrize("script", EVERYDAY_SHELL)
def test_everyday_shell_runs_under_the_profile(script: str, run: Runner) -> None:
    assert "done" in run("shell", ["bash", "-ec", f"cd /workspace; {EVERYDAY_SHELL[script]}\necho done"])


def test_job_control_works_on_a_terminal_under_the_profile(run: Runner) -> None:
    script = "sh -c 'kill -STOP $$; echo continued'; jobs; fg; stty -a > /dev/null && echo done"
    output = run("shell", ["bash", "-ic", script], tty=True)
    assert "Stopped" in output
    assert "continued" in output
    assert "done" in output
