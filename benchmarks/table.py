"""The tables of a run: on the screen, as Markdown, and in the README."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.results import NOT_AVAILABLE, Figure, Grid, Run, Series, number

README: Final = Path(__file__).with_name("README.md")
BEGIN: Final = "<!-- measured: begin (scripts/bench --update-readme writes this) -->"
END: Final = "<!-- measured: end -->"
_MARKS: Final = {True: "yes", False: "**no**", None: "-"}
_CONTENDERS: Final = (
    "benchmark", "contender", "median", "p95", "p99", "unit", "samples", "failed",
)  # fmt: skip


def show(run: Run, console: Console) -> None:
    """Print the figures, the grids and the samples' summaries."""
    _print(console, "Figures", ("figure", "target", "measured", "met"), _figure_rows(run))
    for grid in _grids(run):
        _print(console, f"{grid.title} ({grid.unit})", _grid_head(grid), _grid_rows(grid))
        for line in _absences(grid):
            console.print(line, markup=False)
    _print(console, "Contenders", _CONTENDERS, _contender_rows(run))
    _print(console, "Time", ("benchmark", "seconds", "budget"), _time_rows(run))
    for line in _failures(run):
        console.print(line, markup=False)


def figures_markdown(run: Run) -> str:
    """Return the figures, the grids, the machine and the command as Markdown."""
    blocks = [_markdown(("figure", "target", "measured", "met"), _figure_rows(run))]
    for grid in _grids(run):
        blocks += [f"{grid.title} ({grid.unit}):", _markdown(_grid_head(grid), _grid_rows(grid))]
        blocks += _absences(grid)
    load = run.machine.load_before
    blocks.append(
        f"Measured {run.started[:10]} with version {run.version} by `{run.command}` in {run.seconds:.0f} s, on "
        f"{run.machine.in_words()}; load average {load[0]:.1f} at the start."
    )
    return "\n\n".join(blocks)


def whole_markdown(run: Run) -> str:
    """Return all that there is to say of a run but its samples, as Markdown."""
    blocks = [
        "# Figures",
        figures_markdown(run),
        "# Contenders",
        _markdown(_CONTENDERS, _contender_rows(run)),
    ]
    blocks += ["# Time", _markdown(("benchmark", "seconds", "budget"), _time_rows(run))]
    if failures := [f"- {line}" for line in _failures(run)]:
        blocks += ["# Failures", "\n".join(failures)]
    return "\n\n".join(blocks) + "\n"


def update_readme(run: Run, readme: Path = README, *, charts: tuple[str, ...] = ()) -> None:
    """Write the figures between the README's two markers, and show the charts below them.

    Args:
        run: What was measured.
        readme: The file.
        charts: Paths of pictures, relative to the file.

    Raises:
        ValueError: The markers are not there.
    """
    text = readme.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        msg = f"{readme.name} has no line {BEGIN!r} followed by {END!r}"
        raise ValueError(msg)
    pictures = "".join(f"\n![{Path(chart).stem}]({chart})\n" for chart in charts)
    readme.write_text(f"{before}{BEGIN}\n{figures_markdown(run)}\n{pictures}{END}{after}", "utf-8")


def _print(console: Console, title: str, head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    table = Table(*head, title=title)
    for row in rows:
        table.add_row(*(cell.strip("*") for cell in row))
    console.print(table)


def _markdown(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _figure_rows(run: Run) -> Iterator[tuple[str, ...]]:
    figures: Iterator[Figure] = (figure for benchmark in run.benchmarks for figure in benchmark.figures)
    for figure in figures:
        yield figure.name, figure.target, figure.measured, _MARKS[figure.met]


def _grids(run: Run) -> Iterator[Grid]:
    for benchmark in run.benchmarks:
        yield from benchmark.grids


def _grid_head(grid: Grid) -> tuple[str, ...]:
    return "", *grid.columns


def _grid_rows(grid: Grid) -> Iterator[tuple[str, ...]]:
    for name, row in grid.rows.items():
        cells = zip(grid.columns, row, strict=True)
        yield name, *(NOT_AVAILABLE if column in grid.absent else number(value) for column, value in cells)


def _absences(grid: Grid) -> list[str]:
    return [f"{column}: {NOT_AVAILABLE}: {reason}" for column, reason in grid.absent.items()]


def _contender_rows(run: Run) -> Iterator[tuple[str, ...]]:
    for benchmark in run.benchmarks:
        for name, series in benchmark.series.items():
            yield benchmark.name, name, *_numbers(series)


def _numbers(series: Series) -> tuple[str, ...]:
    if series.absence is not None:
        return series.absence, "", "", "", "", ""
    numbers = ("?" if value is None else f"{value:.4g}" for value in (series.median, series.p95, series.p99))
    failed = len(series.failures)
    return *numbers, series.unit, str(len(series.good)), str(failed) if failed else ""


def _time_rows(run: Run) -> Iterator[tuple[str, ...]]:
    for benchmark in run.benchmarks:
        yield (
            benchmark.name,
            *("-" if each is None else f"{each:.0f}" for each in (benchmark.seconds, benchmark.budget_s)),
        )
    yield "all", f"{run.seconds:.0f}", f"{sum(each.budget_s or 0 for each in run.benchmarks):.0f}"


def _failures(run: Run) -> Iterator[str]:
    for benchmark in run.benchmarks:
        if benchmark.error is not None:
            yield f"failed: {benchmark.name}: {benchmark.error}"
        for name, series in benchmark.series.items():
            for failure in series.failures:
                yield f"failed: {benchmark.name}: {name}: {failure}"
