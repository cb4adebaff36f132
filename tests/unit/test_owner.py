"""An owner is told apart from every other process, also from one that has its number now."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.sandboxes.owner import Owner


def _child() -> "subprocess.Popen[bytes]":
    code = (
        "from aeolus_sandbox.sandboxes.owner import Owner; print(Owner.this_process(), flush=True); input()"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_this_process_is_alive_and_its_label_says_so() -> None:
    owner = Owner.this_process()
    assert owner.pid == os.getpid()
    assert Owner.parse(str(owner)) == owner
    assert Owner.parse(str(owner)).liveness() == "alive"


def test_two_managers_of_one_process_are_two_owners() -> None:
    assert str(Owner.this_process()) != str(Owner.this_process())


def test_a_killed_process_is_gone_even_before_its_parent_notices() -> None:
    with _child() as child:
        assert child.stdout is not None
        owner = Owner.parse(child.stdout.readline().decode().strip())
        assert owner.liveness() == "alive"
        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert owner.liveness() == "gone"  # a zombie
    assert owner.liveness() == "gone"


def test_a_reused_process_id_is_not_the_owner() -> None:
    owner = Owner.this_process()
    assert replace(owner, started=str(int(owner.started) - 1)).liveness() == "gone"


def test_another_boot_machine_or_namespace_is_not_judged() -> None:
    assert replace(Owner.this_process(), host="another").liveness() == "unknown"


@pytest.mark.parametrize("label", ["", "x", "a:b", "a:b:c:d", "a:1:c", "a:1:c:d:e", "a:-1:c:d", "a:1.5:c:d"])
def test_a_label_that_is_not_ours_is_refused(label: str) -> None:
    with pytest.raises(ConfigurationError, match="not an owner's label"):
        Owner.parse(label)


@given(label=st.text(max_size=30) | st.from_regex(r"\A[a-z]{0,3}:\w{0,4}:[0-9]{0,3}:[a-z]?\Z"))
def test_any_label_is_either_parsed_or_refused(label: str) -> None:
    try:
        owner = Owner.parse(label)
    except ConfigurationError:
        return
    assert owner.liveness() in {"alive", "gone", "unknown"}
