"""`aeolus tail` as people use it: real processes, real containers, a real pseudo-terminal."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.test_cli import AEOLUS, LIMIT_S, Pty, containers_of

pytestmark = pytest.mark.docker

HOSTILE = b"ok\x1b[2J\x1b]0;owned\x07\x1b]52;c;cm0=\x07 \x1b]8;;http://x.example/\x1b\\link \xc2\x9b31mred \xe2\x80\xaegnp.exe"
ORDERS = (b"\x1b[2J", b"\x1b]", b"\x07", b"\xc2\x9b", b"\xe2\x80\xae")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "logs"
    folder.mkdir(mode=0o755)
    return folder


def write(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def logged(level: str, message: str, second: int = 2) -> str:
    return json.dumps(
        {"level": level, "time": f"2024-03-10T09:15:{second:02}Z", "msg": message, "code": second}
    )


def tail(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*AEOLUS, "tail", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        check=False,
    )


def follow(folder: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*AEOLUS, "tail", "-f", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )


def test_lines_go_to_stdout_as_they_are_and_the_summary_to_stderr(logs: Path) -> None:
    (logs / "a.log").write_bytes(HOSTILE + b"\r\n" + logged("info", "two").encode() + b"\n")
    done = tail(logs, "a.log")
    assert done.returncode == 0, done
    assert done.stdout == HOSTILE + b"\n" + logged("info", "two").encode() + b"\n"
    assert (
        done.stderr.decode() == f"aeolus: [2 of 2 lines, 1 unparsed of {logs}/a.log] [exited with code 0]\n"
    )


def test_all_filters_work_together_and_json_has_the_result_last(logs: Path) -> None:
    write(logs / "a.log", *(logged(("info", "error")[n % 2], f"m{n}", n) for n in range(60)))
    done = tail(
        logs,
        *(
            "a.log",
            "--json",
            "--format",
            "json",
            "--level",
            "warning",
            "--grep",
            "m[0-9]{2}",
            "--exclude",
            "m5",
        ),
        *("--since", "2024-03-10T09:15:20+00:00", "--until", "2024-03-10T09:15:30+00:00", "-n", "50"),
        *("--field", "level=error", "--multiline", "--timezone", "Europe/Berlin", "--timeout", "50"),
    )
    assert done.returncode == 0, done
    *chunks, result = map(json.loads, done.stdout.splitlines())
    assert [chunk["fields"]["code"] for chunk in chunks] == [21, 23, 25, 27, 29]
    assert (result["type"], result["lines_read"], result["lines_matched"]) == ("result", 50, 5)
    assert done.stderr == b""


def test_a_terminal_gets_colours_and_headlines_and_obeys_nothing(logs: Path) -> None:
    (logs / "a.log").write_bytes(HOSTILE + b"\n" + logged("error", "bad").encode() + b"\n")
    write(logs / "b\x1b]0;t\x07\nc.log", "other")
    with Pty("tail", str(logs / "*.log"), cols=400) as terminal:
        assert terminal.wait_end() == 0
        shown = terminal.seen
    assert f"==> {logs}/a.log <==\r\n".encode() in shown
    assert f"==> {logs}/b␛]0;t␇␊c.log <==\r\nother\r\n".encode() in shown
    assert b"\x1b[31m" + logged("error", "bad").encode() + b"\x1b[0m\r\n" in shown
    assert "ok␛[2J␛]0;owned␇".encode() in shown
    assert not any(order in shown for order in ORDERS)


def test_ctrl_c_ends_it_with_the_summary_and_the_cursor_and_leaves_no_container(logs: Path) -> None:
    log, cursor = logs / "a.log", logs / "cursor"
    write(log, "one", "two")
    with Pty("tail", "-f", str(log), "--format", "raw", "--cursor", str(cursor), cols=400) as terminal:
        terminal.wait_for(b"two\r\n")
        write(log, "three")
        terminal.wait_for(b"three\r\n")
        terminal.type(b"\x03")
        assert terminal.wait_end() == 130
        assert f"aeolus: [3 of 3 lines of {log}] [cancelled]".encode() in terminal.seen
        assert containers_of(terminal.process.pid) == []
    write(log, "four")
    assert tail(logs, "a.log", "--cursor", "cursor").stdout == b"four\n"
    assert tail(logs, "a.log", "--cursor", "cursor").stdout == b""


def test_a_file_that_is_not_there_yet_is_followed_through_its_rotation(logs: Path) -> None:
    process = follow(logs, "new.log", "--format", "raw")
    assert process.stdout is not None
    with process:
        write(logs / "new.log", "a1")
        assert process.stdout.readline() == b"a1\n"
        (logs / "new.log").rename(logs / "new.log.1")
        write(logs / "new.log", "b1")
        assert process.stdout.readline() == b"b1\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143
    assert b"2 of 2 lines, 1 rotations" in said
    assert containers_of(process.pid) == []


def test_it_ends_quietly_when_nobody_reads_any_more(logs: Path) -> None:
    write(logs / "a.log", *(f"line {n}" for n in range(20_000)))
    for options in ("", "-f"):
        command = f"{' '.join(AEOLUS)} tail {options} {logs}/a.log | head -n 1; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=LIMIT_S, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (141, b"line 0\n", b"")


def test_a_time_limit_ends_it_with_its_code_and_the_summary(logs: Path) -> None:
    write(logs / "a.log", "one")
    done = tail(logs, "-f", "a.log", "--timeout", "3")
    assert (done.returncode, done.stdout) == (124, b"one\n")
    assert b"timed out" in done.stderr


def test_links_are_followed_to_where_they_lead(logs: Path) -> None:
    pods = logs.with_name("pods")
    pods.mkdir(mode=0o755)
    write(pods / "0.log", "inside")
    (logs / "web.log").symlink_to(pods / "0.log")
    assert tail(logs, "web.log").stdout == b"inside\n"


def test_a_file_that_only_its_owner_may_read_is_told_and_the_others_are_shown(logs: Path) -> None:
    write(logs / "a.log", "one")
    write(logs / "secret.log", "no")
    (logs / "secret.log").chmod(0o600)
    done = tail(logs, "a.log", "secret.log")
    assert done.returncode == 1
    assert done.stdout == f"==> {logs}/a.log <==\none\n".encode()
    assert b"secret.log cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.log"], b"there is no file"),
        (["."], b"it is a folder"),
        (["pipe"], b"it is a FIFO"),
        (["/proc/self/environ"], b"may not be read"),
        (["-f", "nowhere/a.log"], b"there is no folder"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(logs: Path, arguments: list[str], said: bytes) -> None:
    os.mkfifo(logs / "pipe")
    done = tail(logs, *arguments)
    assert (done.returncode, done.stdout) == (125, b"")
    assert said in done.stderr
    assert done.stderr.count(b"\n") == 1
