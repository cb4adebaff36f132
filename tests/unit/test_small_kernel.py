"""The small kernel speaks Jupyter's protocol, loses nothing, and hears what it is told (bash is its language here)."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeolus_sandbox.guest.small_kernel import SmallKernel
from tests.unit.guest_process import REPOSITORY, gone
from tests.unit.small_kernels import LIMIT_S, Ran, SmallKernelProcess


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallKernelProcess]:
    """Give a kernel that tests share which leave it alive."""
    yield from started(tmp_path_factory.mktemp("workspace"))


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[SmallKernelProcess]:
    yield from started(tmp_path)


def started(workspace: Path) -> Iterator[SmallKernelProcess]:
    kernel = SmallKernelProcess("bash", workspace)
    try:
        kernel.ready()
        yield kernel
    finally:
        kernel.close()


def test_boots_without_jupyters_own_libraries() -> None:
    code = f"import sys, {SmallKernel.__module__}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, check=True)
    slow = {"asyncio", "jupyter_client", "jupyter_core", "tornado", "traitlets", "dateutil"}
    assert slow.isdisjoint(ran.stdout.decode().split())


def test_describes_itself_and_its_heart_beats(shared: SmallKernelProcess) -> None:
    shared.client.kernel_info()
    info = shared.client.get_shell_msg(timeout=LIMIT_S)["content"]
    assert (info["status"], info["implementation"]) == ("ok", "aeolus-bash")
    assert info["language_info"]["name"] == "bash"
    assert shared.client.hb_channel.is_beating()


def test_messages_of_a_cell_come_in_order(shared: SmallKernelProcess) -> None:
    ran = shared.run("echo one; false")
    kinds = [kind for kind, _ in ran.messages]
    assert kinds == ["status", "execute_input", "stream", "error", "status"]
    assert ran.reply["status"] == "error"
    assert (ran.reply["ename"], ran.reply["evalue"]) == ran.error == ("ExitStatus", "1")
    assert shared.run("true").reply["execution_count"] == ran.reply["execution_count"] + 1


def test_cells_that_wait_run_one_after_the_other(shared: SmallKernelProcess) -> None:
    ids = [shared.start(f"sleep 0.05; echo {number}; false") for number in range(4)]
    assert [shared.finish(each).text() for each in ids] == [f"{number}\n" for number in range(4)]


def test_requests_that_it_does_not_know_are_refused_and_nothing_stops(shared: SmallKernelProcess) -> None:
    shared.client.complete("ec")
    assert shared.client.get_shell_msg(timeout=LIMIT_S)["content"]["status"] == "error"
    assert shared.run("echo on").text() == "on\n"


def test_a_message_with_a_wrong_signature_runs_nothing(shared: SmallKernelProcess) -> None:
    session = shared.client.session
    good, session.key = session.key, b"not the key"
    shared.start("echo forged >forged")
    session.key = good
    assert shared.run("ls").text() == ""


def test_broken_messages_stop_nothing(shared: SmallKernelProcess) -> None:
    socket = shared.client.shell_channel.socket
    for parts in ([b"x"], [b"<IDS|MSG>"], [b"<IDS|MSG>", b"", b"{", b"[", b"}", b""]):
        socket.send_multipart(parts)
    assert shared.run("echo on").text() == "on\n"


def test_what_a_background_job_prints_belongs_to_the_cell_that_started_it(shared: SmallKernelProcess) -> None:
    first = shared.start("(until [ -e go ]; do sleep 0.01; done; echo late) & echo now")
    assert shared.finish(first).text() == "now\n"
    shared.late.clear()
    assert shared.run("touch go; wait; echo third").text() == "third\n"
    shared.run("rm go")
    late = [(parent, content["text"]) for parent, kind, content in shared.late if kind == "stream"]
    assert late == [(first, "late\n")]


def test_read_asks_the_client_each_time(shared: SmallKernelProcess) -> None:
    code = "read -p 'name? ' name; read -s word; echo x | read y; read z <<<here; echo $? $name $word $z"
    cell = shared.start(code, allow_stdin=True)
    asked = []
    for answer in ("Ada L", "pass"):
        asked.append(shared.client.get_stdin_msg(timeout=LIMIT_S)["content"])
        shared.client.input(answer)
    assert shared.finish(cell).text() == "0 Ada L pass here\n"
    assert asked == [{"prompt": "name? ", "password": False}, {"prompt": "", "password": True}]


def test_read_meets_the_end_of_input_where_nobody_answers(shared: SmallKernelProcess) -> None:
    shared.run("true", allow_stdin=True)
    assert shared.run("read x; echo $? [$x]; cat; declare -F").text() == "1 []\n"


def test_a_question_can_be_interrupted(shared: SmallKernelProcess) -> None:
    cell = shared.start("read x; echo answered", allow_stdin=True)
    shared.client.get_stdin_msg(timeout=LIMIT_S)
    shared.interrupt()
    assert shared.finish(cell).error == ("KeyboardInterrupt", "the code was interrupted")
    shared.client.input("too late")
    assert shared.run("read x; echo [$x]").text() == "[]\n"


def test_interrupts_at_any_moment_neither_end_it_nor_hang_it(shared: SmallKernelProcess) -> None:
    shared.run("x=0")
    for seed in range(40):
        moments = random.Random(seed)
        cell = shared.start("x=$((x + 1)); sleep 0.002")
        for _ in range(3):
            time.sleep(moments.random() * 0.003)
            shared.interrupt()
        assert shared.finish(cell).reply["status"] in {"ok", "error"}
    assert shared.run('[ "$x" -ge 1 ] && echo kept').text() == "kept\n"


def test_an_interrupt_before_bash_has_seen_the_cell_is_not_forgotten(shared: SmallKernelProcess) -> None:
    bash = int(shared.run("echo $$").text())
    os.kill(bash, signal.SIGSTOP)
    try:
        cell = shared.start("sleep 60")
        shared.until(cell, Ran(), lambda kind, _: kind == "execute_input")
        shared.interrupt()
    finally:
        os.kill(bash, signal.SIGCONT)
    assert shared.finish(cell).error == ("KeyboardInterrupt", "the code was interrupted")


def test_an_interrupt_when_the_cell_is_just_over_hides_no_end(shared: SmallKernelProcess) -> None:
    shared.run("trap 'sleep 0.3' DEBUG")  # runs before each line between the cells too
    cell = shared.start("echo begun")
    shared.says(cell, "begun")
    shared.interrupt()
    assert shared.finish(cell).reply
    assert shared.run("trap - DEBUG; echo on").text() == "on\n"


def test_each_interrupt_of_a_cell_that_goes_on_is_heard(shared: SmallKernelProcess) -> None:
    code = (
        "n=0; trap 'n=$((n + 1)); [ $n = 2 ] && trap - INT; echo got $n' INT; echo begun; while :; do :; done"
    )
    cell = shared.start(code)
    for text in ("begun", "got 1", "got 2"):
        shared.says(cell, text)
        shared.interrupt()
    assert shared.finish(cell).error == ("KeyboardInterrupt", "the code was interrupted")


def test_the_control_channel_interrupts_a_cell(shared: SmallKernelProcess) -> None:
    cell = shared.start("echo begun; sleep 60")
    shared.says(cell, "begun")
    for _ in range(5):  # a signal that comes just as bash begins with a program can be lost to both
        shared.client.control_channel.send(shared.client.session.msg("interrupt_request", {}))
        if shared.client.shell_channel.socket.poll(2000):
            break
    assert shared.finish(cell).error == ("KeyboardInterrupt", "the code was interrupted")


def test_a_slow_client_loses_nothing_and_memory_stays_bounded(shared: SmallKernelProcess) -> None:
    size = 60_000_000
    cell = shared.start(f"head -c {size} /dev/zero | tr '\\0' x; touch over")
    time.sleep(0.3)  # as long as nobody reads, it cannot end, however long that is
    assert not (shared.workspace / "over").exists()
    assert len(shared.finish(cell).text()) == size
    peak = Path(f"/proc/{shared.process.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
    assert int(peak) < 100_000  # kB


def test_end_of_bash_ends_the_kernel_with_the_same_code(kernel: SmallKernelProcess) -> None:
    ran = kernel.run("trap 'echo bye' EXIT; echo so; exit 3")
    assert (ran.text(), ran.error) == ("so\nbye\n", ("ExitStatus", "3"))
    assert [each["source"] for each in ran.reply["payload"]] == ["ask_exit"]
    assert kernel.process.wait(timeout=LIMIT_S) == 3


def test_a_killed_bash_kills_the_kernel_after_what_it_printed(kernel: SmallKernelProcess) -> None:
    ran = kernel.run("echo before; kill -9 $$")
    assert (ran.text(), ran.reply) == ("before\n", {})
    assert kernel.process.wait(timeout=LIMIT_S) == -signal.SIGKILL


def test_a_shutdown_request_ends_it(kernel: SmallKernelProcess) -> None:
    kernel.client.shutdown()
    assert kernel.process.wait(timeout=LIMIT_S) == 0


def test_it_does_not_outlive_its_parent(kernel: SmallKernelProcess) -> None:
    # A parent that starts a second kernel beside this one's files, and goes when its input ends.
    argv = [*kernel.process.args] if isinstance(kernel.process.args, list) else []
    kernel.process.kill()
    kernel.process.wait(timeout=LIMIT_S)
    parent = subprocess.Popen(
        ["sh", "-c", '"$@" 2>/dev/null & echo $!; read end', "sh", *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    assert parent.stdin
    assert parent.stdout
    pid = int(parent.stdout.readline())
    try:
        kernel.client.kernel_info()
        assert kernel.client.get_shell_msg(timeout=LIMIT_S)["content"]["status"] == "ok"
        parent.communicate(timeout=LIMIT_S)
        deadline = time.monotonic() + LIMIT_S
        while not gone(pid):
            assert time.monotonic() < deadline
    finally:
        if not gone(pid):
            os.kill(pid, signal.SIGKILL)
