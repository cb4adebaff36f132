"""The examples and the demo do what they say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo import verdict

pytestmark = pytest.mark.docker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_example(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLES / name],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
        check=False,
    )


def test_terminal_session_talks_to_a_program() -> None:
    done = run_example("terminal_session.py")
    assert done.returncode == 0, done.stderr
    assert "hello 42" in done.stdout
    assert "it ended: exited with code 3" in done.stdout


def test_custom_tool_streams_its_own_chunks() -> None:
    done = run_example("custom_tool.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["3", "2", "1", "ticks=3 was_cancelled=False"]


def test_container_tool_runs_in_a_sandbox() -> None:
    done = run_example("container_tool.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["apple", "fig", "pear", "exited with code 0"]


def test_follow_logs_goes_through_a_rotation_and_on_from_its_cursor() -> None:
    done = run_example("follow_logs.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "2024-03-10 09:15:02+00:00 error payment failed",
        "notice: rotated",
        "2024-03-10 09:15:02+00:00 error upload failed",
        "since then: stopped",
    ]


@pytest.mark.parametrize(
    "said",
    [
        "[SUCCEEDED] network: connected\n",
        "[failed] network: ECONNREFUSED: not by the barrier\n",
        "[failed] fork bomb: EAGAIN: another attempt\n",
        "",
    ],
)
def test_demo_calls_nothing_stopped_that_was_not(said: str) -> None:
    assert not verdict("network", said).stopped


@pytest.mark.slow
def test_demo_shows_that_everything_forbidden_is_stopped() -> None:
    plot = EXAMPLES.parent / "demo-output" / "plot-1.png"
    plot.unlink(missing_ok=True)
    done = run_example("demo.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT STOPPED" not in done.stdout
    stopped = [line for line in done.stdout.splitlines() if "│ stopped │" in line]
    assert len(stopped) == 10
    assert "limit_hit=memory" in done.stdout
    assert plot.read_bytes().startswith(b"\x89PNG\r\n")
    assert (
        done.stdout.index("step 1 of 3")
        < done.stdout.index("step 3 of 3")
        < done.stdout.index("What starts cost")
    )
