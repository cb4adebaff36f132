"""What a run leaves: JSON with every sample, Markdown with every number and failure, and charts."""

import ast
from pathlib import Path

import pytest

from benchmarks import charts, report, table
from benchmarks.results import Benchmark, Figure, Run, Series
from tests.unit.benchmark_runs import MISSING, made_up_run, with_grid, with_samples

PNG = b"\x89PNG\r\n\x1a\n"


def test_run_is_written_as_samples_tables_and_charts(tmp_path: Path) -> None:
    run = made_up_run(with_samples(), with_grid())
    samples, tables, *pictures = report.write(run, tmp_path / "results")
    assert Run.model_validate_json(samples.read_text("utf-8")) == run
    assert [picture.name for picture in pictures] == [
        "2000-01-01T000000+0000-latency.png",
        "2000-01-01T000000+0000-overhead.png",
    ]
    for picture in pictures:
        assert picture.read_bytes().startswith(PNG)
        assert f"]({picture.name})" in tables.read_text("utf-8")


def test_markdown_has_median_percentiles_and_failures_of_every_contender() -> None:
    text = table.whole_markdown(made_up_run(with_samples()))
    assert "| ours | ≤ 5 ms | 2 ms | yes |" in text
    assert "| latency | ours | 2 | 2.9 | 2.98 | ms | 3 |  |" in text
    assert "| latency | other | 20 | 29 | 29.8 | ms | 2 | 1 |" in text
    assert "- failed: latency: other: round 2: OSError('gone')" in text
    assert "| latency | 11 | 10 |" in text
    assert "runtimes: crun, runc" in text


def test_what_is_not_available_is_said_with_its_reason_and_without_a_number() -> None:
    text = table.whole_markdown(made_up_run(with_samples(), with_grid()))
    assert f"| latency | gVisor | not available: {MISSING} |  |  |  |  |  |" in text
    assert "| getpid (bare 0.1 µs) | 1.25 | not available |" in text
    assert f"gVisor: not available: {MISSING}" in text


def test_benchmark_that_could_not_begin_is_told() -> None:
    broken = Benchmark(name="tailer", series={}, figures=[], error="OSError('no space')")
    assert "failed: tailer: OSError('no space')" in table.whole_markdown(made_up_run(broken))


@pytest.mark.parametrize(
    "series",
    [
        {},
        {"a": Series(unit="ms", unavailable="no")},
        {"a": Series(unit="ms", samples=[None], failures=["x"])},
    ],
)
def test_chart_of_nothing_is_not_drawn(series: dict[str, Series], tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    assert not charts.draw(Benchmark(name="x", series=series, figures=[]), path)
    assert not path.exists()


def test_chart_takes_one_sample_zeros_and_a_wide_range(tmp_path: Path) -> None:
    series = {
        "one": Series(unit="ms", samples=[1.0]),
        "wide": Series(unit="ms", samples=[0.5, 5_000.0]),
        "memory": Series(unit="MiB", samples=[0.0, 0.0]),
        "less": Series(unit="KiB", samples=[-1.0, 2.0]),
    }
    path = tmp_path / "x.png"
    assert charts.draw(Benchmark(name="x", series=series, figures=[]), path)
    assert path.read_bytes().startswith(PNG)


def test_readme_table_and_charts_are_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    for measured in ("1 ms", "2 ms"):
        figure = Figure(name="a figure", target="≤ 5 ms", measured=measured, value=1.0, met=True)
        run = made_up_run(with_grid(), Benchmark(name="cell", series={}, figures=[figure]))
        report.update_readme(run, readme, tmp_path / "charts")
    text = readme.read_text()
    assert text.startswith(f"before\n{table.BEGIN}\n| figure ")
    assert text.endswith(f"\n{table.END}\nafter\n")
    assert "2 ms" in text
    assert "1 ms" not in text
    assert "old" not in text
    assert text.count("![overhead](charts/overhead.png)") == 1
    assert (tmp_path / "charts" / "overhead.png").read_bytes().startswith(PNG)


def test_readme_has_the_place_for_the_table() -> None:
    text = table.README.read_text("utf-8")
    assert 0 < text.find(table.BEGIN) < text.find(table.END)


def test_only_the_charts_know_matplotlib() -> None:
    sources = Path(charts.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if "matplotlib" in _imported(path)] == ["charts.py"]


def _imported(path: Path) -> set[str]:
    """Return the top-level names of what a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names
