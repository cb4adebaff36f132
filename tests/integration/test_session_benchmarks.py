"""The benchmarks of sessions run, find no failure and no leak, and say of what is not there that it is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.results import NOT_AVAILABLE, Benchmark, Run

ROOT = Path(__file__).parents[2]


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(560)
@pytest.mark.parametrize("name", ["latency", "density"])
def test_every_contender_is_measured_or_said_to_be_away(name: str, tmp_path: Path) -> None:
    benchmark = _quick(name, tmp_path)
    for contender, series in benchmark.series.items():
        assert series.failures == [], contender
        assert bool(series.good) is (series.unavailable is None), contender
    for figure in benchmark.figures:
        assert (figure.value is None) is figure.measured.startswith(NOT_AVAILABLE), figure


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(560)
def test_churn_leaves_nothing_behind(tmp_path: Path) -> None:
    benchmark = _quick("churn", tmp_path)
    figures = {figure.name.split(",")[0]: figure for figure in benchmark.figures}
    assert figures["sessions that failed"].value == 0, benchmark.notes["failures"]
    [left] = [figure for figure in benchmark.figures if figure.name.startswith("left of ")]
    assert left.value == 0, left
    assert benchmark.notes["sessions"] > 0


def _quick(name: str, results: Path) -> Benchmark:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, "--quick", "--results", str(results)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = results.glob("*.json")
    [benchmark] = Run.model_validate_json(path.read_text("utf-8")).benchmarks
    assert benchmark.name == name
    return benchmark
