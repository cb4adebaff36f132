"""The table of figures: on the screen, as Markdown, and in the README."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.results import Figure, Run

README: Final = Path(__file__).with_name("README.md")
BEGIN: Final = "<!-- measured: begin (scripts/bench --update-readme writes this) -->"
END: Final = "<!-- measured: end -->"
_MARKS: Final = {True: "yes", False: "**no**", None: "-"}


def show(run: Run, console: Console) -> None:
    """Print the figures and the samples' summaries."""
    table = Table("figure", "target", "measured", "met", title="Figures")
    for figure in _figures(run):
        table.add_row(figure.name, figure.target, figure.measured, _MARKS[figure.met].strip("*"))
    console.print(table)
    table = Table("benchmark", "contender", "median", "p95", "unit", "samples", "failed", title="Contenders")
    for benchmark in run.benchmarks:
        for name, series in benchmark.series.items():
            numbers = ("?" if value is None else f"{value:.4g}" for value in (series.median, series.p95))
            failed = len(series.failures)
            table.add_row(
                benchmark.name,
                name,
                *numbers,
                series.unit,
                str(len(series.good)),
                str(failed) if failed else "",
            )
    console.print(table)
    for benchmark in run.benchmarks:
        for name, series in benchmark.series.items():
            for failure in series.failures:
                console.print(f"failed: {benchmark.name}: {name}: {failure}", markup=False)


def markdown(run: Run) -> str:
    """Return the figures, the machine and the command as Markdown."""
    lines = ["| figure | target | measured | met |", "|---|---|---|---|"]
    lines += [f"| {f.name} | {f.target} | {f.measured} | {_MARKS[f.met]} |" for f in _figures(run)]
    load = run.machine.load_before
    circumstances = (
        f"Measured {run.started[:10]} with version {run.version} by `{run.command}` in {run.seconds:.0f} s, on "
        f"{run.machine.in_words()}; load average {load[0]:.1f} at the start."
    )
    return "\n".join((*lines, "", circumstances))


def update_readme(run: Run, readme: Path = README) -> None:
    """Write the figures between the README's two markers.

    Raises:
        ValueError: The markers are not there.
    """
    text = readme.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        msg = f"{readme.name} has no line {BEGIN!r} followed by {END!r}"
        raise ValueError(msg)
    readme.write_text(f"{before}{BEGIN}\n{markdown(run)}\n{END}{after}", "utf-8")


def _figures(run: Run) -> Iterator[Figure]:
    for benchmark in run.benchmarks:
        yield from benchmark.figures
