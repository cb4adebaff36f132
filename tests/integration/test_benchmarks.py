"""The benchmarks run and leave results that can be read; how fast anything was is not looked at."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import table
from benchmarks.results import Benchmark, Figure, Machine, Run, Series

ROOT = Path(__file__).parents[2]


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["cold", "parked", "cell", "throughput", "import"])
def test_benchmark_runs_and_its_results_can_be_read(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, "--quick", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = tmp_path.iterdir()
    run = Run.model_validate_json(path.read_text("utf-8"))
    [benchmark] = run.benchmarks
    assert benchmark.name == name
    for contender, series in benchmark.series.items():
        assert series.failures == [], contender
        assert len(series.good) >= 2, contender
        assert min(series.good) >= 0, contender
    assert benchmark.figures
    for figure in benchmark.figures:
        assert figure.value is not None, figure
        assert figure.name in table.markdown(run)


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


def test_readme_table_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    for measured in ("1 ms", "2 ms"):
        table.update_readme(_run_with(measured), readme)
    text = readme.read_text()
    assert text.startswith(f"before\n{table.BEGIN}\n| figure ")
    assert text.endswith(f"\n{table.END}\nafter\n")
    assert "2 ms" in text
    assert "1 ms" not in text
    assert "old" not in text


def test_readme_has_the_place_for_the_table() -> None:
    text = table.README.read_text("utf-8")
    assert 0 < text.find(table.BEGIN) < text.find(table.END)


def test_ratio_is_taken_within_rounds_and_leaves_failures_out() -> None:
    mine = Series(unit="ms", samples=[10.0, 200.0, None, 30.0])
    other = Series(unit="ms", samples=[5.0, 100.0, 1.0, None])
    assert mine.ratio_to(other) == 2.0
    assert Series(unit="ms", samples=[None]).ratio_to(Series(unit="ms", samples=[1.0])) is None


def _run_with(measured: str) -> Run:
    figure = Figure(name="a figure", target="≤ 5 ms", measured=measured, value=1.0, met=True)
    return Run(
        version="0",
        started="2000-01-01T00:00:00+00:00",
        command="scripts/bench",
        quick=False,
        seconds=1.0,
        machine=Machine(
            processor="a processor",
            processors=2,
            memory_gib=1.0,
            system="Linux",
            python="3.11",
            engine="an engine",
            load_before=(0.0, 0.0, 0.0),
        ),
        benchmarks=[Benchmark(name="cold", series={}, figures=[figure])],
    )
