"""The command line as people use it: real processes, real containers, a real pseudo-terminal."""

import asyncio
import fcntl
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Self

import pytest
from docker import DockerClient

from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.engine.image_catalog import image_reference
from aeolus_sandbox.sandboxes.owner import Owner
from tests.integration.second_engine import SecondEngine

pytestmark = pytest.mark.docker

AEOLUS = [sys.executable, "-m", "aeolus_sandbox"]
LIMIT_S = 60


def aeolus(*arguments: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*AEOLUS, *arguments],
        input=stdin,
        capture_output=True,
        timeout=LIMIT_S,
        env=os.environ | env,
        check=False,
    )


def containers_of(pid: int) -> list[str]:
    async def look() -> list[str]:
        async with DockerEngine() as engine:
            found = await engine.list_containers({OWNER_LABEL: None})
        return [each.id for each in found if f":{pid}:" in each.labels[OWNER_LABEL]]

    return asyncio.run(look())


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while left := containers_of(pid):
        assert time.monotonic() < deadline, f"containers are left: {left}"
        time.sleep(0.2)


def start(*arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([*AEOLUS, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


class Pty:
    """The command line at a terminal of its own."""

    def __init__(self, *arguments: str, cols: int = 80, rows: int = 24, **env: str) -> None:
        self.master, self.slave = os.openpty()
        self.resize(cols, rows)
        self.mode = termios.tcgetattr(self.slave)
        self.seen = b""
        self.process = subprocess.Popen(
            [*AEOLUS, *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one system call
            env={**os.environ, "TERM": "xterm-256color", **env},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, cols: int, rows: int) -> None:
        termios.tcsetwinsize(self.slave, (rows, cols))

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + LIMIT_S
        while text not in self.seen:
            assert self._read(deadline - time.monotonic()), f"{text!r} did not come, but {self.seen!r}"
        self.seen = self.seen.partition(text)[2]

    def wait_end(self) -> int:
        deadline = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end; it said {self.seen!r}"
            self._read(0.2)
        while self._read(0):
            pass
        return self.process.returncode

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self.master], [], [], max(0, timeout_s))[0]:
            return False
        self.seen += os.read(self.master, 65536)
        return True


# run


def test_run_shows_output_as_it_comes() -> None:
    process = start(
        "run", "-c", "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(1)"
    )
    assert process.stdout is not None
    with process.stdout as output:
        times = [(line, time.monotonic()) for line in output]
    assert process.wait(LIMIT_S) == 0
    assert [line for line, _ in times] == [b"0\n", b"1\n", b"2\n"]
    assert all(late - early > 0.5 for (_, early), (_, late) in itertools.pairwise(times))


def test_run_json_is_one_object_a_line_and_ends_with_the_result() -> None:
    done = aeolus(
        "run", "--json", "-c", "print('é\\u202e'); print('\\ud800'.encode('utf-8', 'replace')); 6 * 7"
    )
    *chunks, result = [json.loads(line) for line in done.stdout.decode("utf-8").splitlines()]
    assert {chunk["type"] for chunk in chunks} == {"chunk"}
    assert "".join(chunk["content"] for chunk in chunks if chunk["stream"] == "stdout").startswith(
        "é\u202e\n"
    )
    assert result["type"] == "result"
    assert result["success"] is True
    assert result["result"] == "42"
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["-c", "print('fine')"], 0, b""),
        (["-c", "import sys; sys.exit()"], 0, b""),
        (["-c", "1 / 0"], 1, b"ZeroDivisionError"),
        (["-c", "import os; os._exit(7)"], 1, b"exited with code 7"),
        (["-c", "while True: pass", "--timeout", "2"], 124, b"timed out"),
        (["-c", "x = []\nwhile True: x.append(bytearray(10**7))", "--memory", "160m"], 137, b"out of memory"),
        (["-c", "1", "--image", "nosuch:1"], 125, b"nosuch:1"),
        (["-c", "1", "-l", "cobol"], 125, b"cobol"),
        (["-l", "bash", "-c", "[[ a == a ]] && echo fine"], 0, b""),
        (["-l", "bash", "-c", "exit 3"], 1, b""),
        (["-l", "bash", "-c", "sleep 60", "--timeout", "1"], 124, b"timed out"),
        (["-l", "bash", "-c", "rm -rf /"], 125, b"rm"),
    ],
)
def test_run_ends_with_the_exit_code_that_says_why(arguments: list[str], code: int, said: bytes) -> None:
    done = aeolus("run", *arguments)
    assert done.returncode == code, done
    assert said in done.stderr
    assert b"aeolus_sandbox/" not in done.stderr


def test_run_takes_code_from_a_file_by_its_suffix_and_from_stdin(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('py', 2 ** 10)")
    (tmp_path / "a.sh").write_text("echo sh $BASH_VERSION; echo err >&2")
    assert aeolus("run", str(tmp_path / "a.py")).stdout == b"py 1024\n"
    done = aeolus("run", str(tmp_path / "a.sh"))
    assert done.stdout.startswith(b"sh 5.")
    assert done.stderr == b"err\n"
    assert aeolus("run", "-", stdin=b"print('piped')").stdout == b"piped\n"


def test_run_puts_files_into_the_workspace_under_both_forms_of_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"first\n")
    (tmp_path / "b.bin").write_bytes(bytes(range(256)))
    files = ["--file", str(tmp_path / "a.txt"), "--file", f"{tmp_path / 'b.bin'}:data/b"]
    code = "print(open('a.txt').read().strip(), open('data/b', 'rb').read() == bytes(range(256)))"
    assert aeolus("run", *files, "-c", code).stdout == b"first True\n"
    assert aeolus("run", *files, "-l", "bash", "-c", "cat a.txt; wc -c <data/b").stdout == b"first\n256\n"


def test_run_saves_images_numbered_and_names_them(tmp_path: Path) -> None:
    out = tmp_path / "plots"
    code = "import matplotlib.pyplot as plt\nfor i in (1, 2):\n    plt.plot([0, i])\n    plt.show()"
    done = aeolus("run", "--out", str(out), "-c", code)
    assert sorted(path.name for path in out.iterdir()) == ["image-001.png", "image-002.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG\r\n") for path in out.iterdir())
    assert str(out / "image-001.png") in done.stderr.decode()


def test_run_never_lets_a_container_command_the_screen() -> None:
    code = r"print('A\x1b[2J\x1b]0;owned\x07\x1b[31mred\u202e', end='Z\n')"
    with Pty("run", "-c", code) as terminal:
        assert terminal.wait_end() == 0
        shown = terminal.seen
    assert b"\x1b[31mred" in shown
    assert "␛]0;owned␇".encode() in shown
    assert not any(order in shown for order in (b"\x1b[2J", b"\x1b]", b"\x07", "\u202e".encode()))
    with Pty("run", "-c", code, NO_COLOR="1") as terminal:
        assert terminal.wait_end() == 0
        assert b"\x1b" not in terminal.seen


def test_run_gives_exact_bytes_to_a_pipe() -> None:
    done = aeolus("run", "-l", "bash", "-c", r"printf '\033]0;x\007\377\000'")
    assert done.stdout == b"\x1b]0;x\x07\xff\x00"


def test_run_ends_quietly_when_nobody_reads() -> None:
    command = f"{' '.join(AEOLUS)} run -l bash -c yes | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (141, b"y\n", b"")


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_run_that_is_interrupted_leaves_no_container(number: str, code: int) -> None:
    process = start("run", "-c", "import time\nprint('on', flush=True)\ntime.sleep(60)")
    assert process.stdout is not None
    assert process.stdout.readline() == b"on\n"
    assert len(containers_of(process.pid)) == 1
    process.send_signal(signal.Signals[number])
    assert process.wait(LIMIT_S) == code
    process.stdout.close()
    assert containers_of(process.pid) == []


@pytest.mark.parametrize("arguments", [["run", "-l", "bash", "-c"], ["run", "-c"]])
def test_killed_command_line_leaves_no_container(arguments: list[str]) -> None:
    code = (
        "import time\nprint('on', flush=True)\ntime.sleep(60)"
        if "-l" not in arguments
        else "echo on; sleep 60"
    )
    process = start(*arguments, code)
    assert process.stdout is not None
    assert process.stdout.readline() == b"on\n"
    process.kill()
    process.wait(LIMIT_S)
    process.stdout.close()
    wait_until_gone(process.pid)


# shell


def test_shell_follows_the_window_and_gives_its_programs_code_and_the_terminal_back() -> None:
    with Pty("shell", cols=101, rows=37) as terminal:
        terminal.type(b"stty size\n")
        terminal.wait_for(b"37 101")
        loop = b'trap "stty size; n=1" WINCH; echo at=$((1 + 1)); until [ $n ]; do sleep 0.1; done'
        terminal.type(b"sh -c '" + loop + b"'; echo $0 $((6 * 7))\n")
        terminal.wait_for(b"at=2")
        terminal.resize(77, 22)
        terminal.wait_for(b"22 77")
        terminal.wait_for(b"bash 42")
        assert termios.tcgetattr(terminal.slave) != terminal.mode
        terminal.type(b"exit 7\n")
        assert terminal.wait_end() == 7
        assert termios.tcgetattr(terminal.slave) == terminal.mode


def test_shell_sends_ctrl_c_inside() -> None:
    with Pty("shell") as terminal:
        terminal.type(b"sh -c 'echo on=$((1 + 1)); exec sleep 60'\n")
        terminal.wait_for(b"on=2")
        terminal.type(b"\x03")
        terminal.wait_for(b"$ ")
        terminal.type(b"echo code=$?\n")
        terminal.wait_for(b"code=130")
        terminal.type(b"exit 4\n")
        assert terminal.wait_end() == 4


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_shell_that_is_ended_from_outside_restores_the_terminal(number: str, code: int) -> None:
    with Pty("shell", "echo ready; sleep 60") as terminal:
        terminal.wait_for(b"ready")
        assert termios.tcgetattr(terminal.slave) != terminal.mode
        terminal.process.send_signal(signal.Signals[number])
        assert terminal.wait_end() == code
        assert termios.tcgetattr(terminal.slave) == terminal.mode
        assert containers_of(terminal.process.pid) == []


def test_killed_shell_leaves_no_container() -> None:
    with Pty("shell", "echo ready; sleep 60") as terminal:
        terminal.wait_for(b"ready")
        terminal.process.kill()
        terminal.process.wait(LIMIT_S)
    wait_until_gone(terminal.process.pid)


def test_shell_times_out_with_124_and_says_so() -> None:
    with Pty("shell", "--timeout", "1", "sleep 60") as terminal:
        assert terminal.wait_end() == 124
        assert b"timed out" in terminal.seen


def test_piped_shell_passes_input_its_end_and_both_outputs() -> None:
    data = os.urandom(300_000)
    done = aeolus("shell", "wc -c; echo err >&2; exit 5", stdin=data)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (5, b"300000", b"err\n")
    assert aeolus("shell", "cat", stdin=data).stdout == data
    assert aeolus("shell", stdin=b"echo $0\nexit 3\n").stdout == b"bash\n"


def test_shell_gives_128_plus_the_signal() -> None:
    assert aeolus("shell", "kill -KILL $$").returncode == 137
    assert aeolus("shell", "kill -USR1 $$").returncode == 128 + signal.SIGUSR1


def test_shell_runs_arguments_without_a_shell_between() -> None:
    assert aeolus("shell", "--", "printf", "%s|", "a b", "$HOME").stdout == b"a b|$HOME|"


def test_shell_policy_decides_about_dangerous_commands() -> None:
    dangerous = "rm -rf /"
    refused = aeolus("shell", dangerous)
    assert refused.returncode == 125
    assert len(refused.stderr.splitlines()) == 1
    assert aeolus("shell", "--allow-dangerous", dangerous).returncode != 125
    assert aeolus("shell", "--command-policy", "warn", dangerous).returncode != 125


# doctor, reap, images


def test_doctor_finds_the_engine_and_says_so_in_json_too() -> None:
    done = aeolus("doctor", "--json")
    findings = {record["subject"]: record for record in map(json.loads, done.stdout.splitlines())}
    assert {"engine", "API", "cgroup", "storage", "seccomp", "runtimes", "image python"} <= findings.keys()
    assert findings["engine"]["level"] == "ok"
    assert all(record["level"] == "ok" or record["advice"] for record in findings.values())
    assert done.returncode == int(any(record["level"] == "fail" for record in findings.values()))


@pytest.fixture
def abandoned(second_engine: SecondEngine) -> Iterator[str]:
    """Give a container of an owner that is gone, on an engine where nobody else reaps."""
    mine = Owner.this_process()
    labels = {OWNER_LABEL: str(Owner(mine.host, mine.pid, "1", mine.nonce))}
    with closing(DockerClient(second_engine.address)) as docker:
        container = docker.containers.create(image_reference("shell"), ["sleep", "60"], labels=labels)
        yield str(container.id)
        if container.id in {each.id for each in docker.containers.list(all=True)}:
            container.remove(force=True)


@pytest.mark.xdist_group("second engine")
def test_reap_removes_what_is_abandoned_and_says_what(abandoned: str, second_engine: SecondEngine) -> None:
    done = aeolus("reap", DOCKER_HOST=second_engine.address)
    assert done.returncode == 0
    assert f"removed {abandoned}" in done.stdout.decode().splitlines()
    assert b"nothing to remove" not in done.stdout


def test_images_are_listed_plainly_to_a_pipe_and_as_a_table_on_a_terminal() -> None:
    done = aeolus("images", "list")
    rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
    assert {"base", "python", "shell"} <= {row[0] for row in rows}
    assert all(row[1] in {"current", "stale", "missing"} for row in rows)
    with Pty("images", "list", cols=120, NO_COLOR="1") as terminal:
        assert terminal.wait_end() == 0
        assert "│ shell".encode() in terminal.seen


def test_image_that_is_current_is_not_built_again() -> None:
    done = aeolus("images", "build", "shell")
    assert (done.returncode, done.stdout.decode().strip()) == (0, image_reference("shell"))


def test_images_that_keep_their_promises_are_verified() -> None:
    done = aeolus("images", "verify", "shell")
    assert done.returncode == 0, done
    lines = done.stdout.decode().splitlines()
    assert lines
    assert all(line.startswith("ok   shell: ") for line in lines)


@pytest.mark.parametrize(
    "arguments", [["images", "list"], ["images", "verify"], ["shell", "true"], ["run", "-c", "1"]]
)
def test_no_engine_is_one_line_and_no_traceback(arguments: list[str]) -> None:
    done = aeolus(*arguments, DOCKER_HOST="unix:///nonexistent")
    assert (done.returncode, done.stdout) == (125, b"")
    (line,) = done.stderr.splitlines()
    assert line.startswith(b"aeolus: ")
    assert b"/nonexistent" in line
