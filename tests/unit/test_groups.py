"""Tests of one group run in one process: some look at all images or at an engine that others of them change."""

import subprocess
import sys
from pathlib import Path

SUITE = """
import pytest

pytestmark = [pytest.mark.xdist_group("together")]


@pytest.mark.parametrize("number", range(6))
def test_one(number, worker_id):
    with open("workers", "a") as file:
        file.write(f"{worker_id}\\n")
"""


def test_a_group_is_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "test_suite.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=100)
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 6
    assert len(set(workers)) == 1
