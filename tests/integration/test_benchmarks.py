"""The benchmarks run and leave results that can be read; how fast anything was is not looked at."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.results import Benchmark, Run

ROOT = Path(__file__).parents[2]


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(560)
@pytest.mark.parametrize("names", [("overhead", "throughput"), ("cell", "import")], ids=" ".join)
def test_benchmarks_run_and_their_results_can_be_read(names: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *names, "--quick", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [samples] = tmp_path.glob("*.json")
    [tables] = tmp_path.glob("*.md")
    run = Run.model_validate_json(samples.read_text("utf-8"))
    assert [benchmark.name for benchmark in run.benchmarks] == list(names)
    for benchmark in run.benchmarks:
        _check(benchmark)
        assert (tmp_path / f"{samples.stem}-{benchmark.name}.png").stat().st_size > 1000
        for figure in benchmark.figures:
            assert figure.name in tables.read_text("utf-8")


def _check(benchmark: Benchmark) -> None:
    """Check that every contender that is there was measured, and that no other has a number."""
    assert benchmark.figures or benchmark.grids
    for contender, series in benchmark.series.items():
        assert series.failures == [], contender
        assert len(series.good) >= (0 if series.unavailable else 1), contender
        assert all(sample >= 0 for sample in series.good), contender
    for figure in benchmark.figures:
        assert figure.value is not None, figure
    for grid in benchmark.grids:
        for name, row in grid.rows.items():
            there = [column not in grid.absent for column in grid.columns]
            assert [number is not None for number in row] == there, name


def test_unknown_benchmark_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nonsense", "--results", str(tmp_path / "results")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    assert not (tmp_path / "results").exists()
