"""The kernel host's start: what it loads, how it is called, and the warm-up where packages may be missing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aeolus_sandbox.guest.frames import Result
from aeolus_sandbox.guest.kernel_wire import Request, Wire
from tests.unit.guest_process import REPOSITORY, Guest, gone, printed

_HOST = "aeolus_sandbox.guest.kernel_host"


def test_guest_boots_without_jupyters_own_libraries() -> None:
    code = f"import sys, {_HOST}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, check=True)
    slow = {"jupyter_client", "jupyter_core", "tornado", "traitlets", "dateutil"}
    assert slow.isdisjoint(ran.stdout.decode().split())


@pytest.mark.parametrize("arguments", [[], ["cobol"], ["python", "--hot"], ["python", "--warm", "--warm"]])
def test_wrong_arguments_are_told_how_it_is_called(arguments: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", _HOST, *arguments], cwd=REPOSITORY, capture_output=True, check=False
    )
    assert ran.returncode == 64
    assert ran.stderr.startswith(b"usage: aeolus-kernel-host ")
    assert ran.stderr.endswith(b" [--warm]\n")


def test_warm_kernel_is_ready_whatever_can_be_imported_and_has_run_no_cell(tmp_path: Path) -> None:
    guest = Guest(tmp_path, "--warm")
    try:
        guest.ready()
        results = [reply for reply in guest.run("In, Out") if isinstance(reply, Result)]
        assert [(result.execution_count, result.data["text/plain"]) for result in results] == [
            (1, "(['', 'In, Out'], {})")
        ]
        assert guest.end() == 0
    finally:
        guest.close()


def test_kernel_dies_with_a_guest_that_is_killed(tmp_path: Path) -> None:
    guest = Guest(tmp_path)
    try:
        guest.ready()
        kernel = int(printed(guest.run("import os; print(os.getpid())")))
    finally:
        guest.close()  # by SIGKILL
    assert gone(kernel)


def test_messages_are_read_back_with_their_parent() -> None:
    client, kernel = Wire("key", username="guest"), Wire("key")
    message_id, parts = client.ask("execute_request", {"code": "é"}, {"some": 1})
    request = kernel.unpack([b"someone", *parts])
    assert isinstance(request, Request)
    assert (request.kind, request.content, request.identities) == (
        "execute_request",
        {"code": "é"},
        [b"someone"],
    )
    answer = kernel.pack("stream", {"text": "x"}, request, [b"topic"])
    assert client.read(answer) == ("stream", message_id, {"text": "x"})


@pytest.mark.parametrize("parts", [[b"x"], [b"<IDS|MSG>", b"no"], [b"<IDS|MSG>", *[b"{}"] * 5]])
def test_what_is_no_message_of_the_kernel_is_refused(parts: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Wire("key").read(parts)


def test_numbers_and_texts_that_json_has_no_word_for_are_read() -> None:
    wire = Wire("key")
    request = Request([], {"msg_id": "1"}, {})
    *head, _ = wire.pack("stream", {}, request, [])
    content = json.dumps({"number": float("inf"), "text": "\ud800"}).encode()
    signature = wire._signature([*head[2:], content])  # what a kernel of another make would send
    read = wire.read([head[0], signature, *head[2:], content])
    assert read == ("stream", "1", {"number": float("inf"), "text": "\ud800"})
