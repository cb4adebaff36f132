"""What a run leaves in files: every sample as JSON, the tables as Markdown, and a chart for each benchmark."""

from pathlib import Path
from typing import Final

from benchmarks import charts, table
from benchmarks.results import Run

CHARTS: Final = Path(__file__).with_name("charts")
"""Where the charts that README.md shows are kept."""


def write(run: Run, folder: Path) -> list[Path]:
    """Write a run's files and return their paths, the JSON file first."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = run.started.replace(":", "")
    samples, tables = folder / f"{stem}.json", folder / f"{stem}.md"
    samples.write_text(run.model_dump_json(indent=1), "utf-8")
    pictures = draw(run, folder, prefix=f"{stem}-")
    shown = "".join(f"\n![{picture.stem}]({picture.name})\n" for picture in pictures)
    tables.write_text(table.whole_markdown(run) + shown, "utf-8")
    return [samples, tables, *pictures]


def draw(run: Run, folder: Path, *, prefix: str = "") -> list[Path]:
    """Draw a chart of each benchmark that has something to show, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {benchmark.name: folder / f"{prefix}{benchmark.name}.png" for benchmark in run.benchmarks}
    return [paths[each.name] for each in run.benchmarks if charts.draw(each, paths[each.name])]


def update_readme(run: Run, readme: Path = table.README, folder: Path = CHARTS) -> None:
    """Write a run's tables and charts where README.md shows them."""
    pictures = draw(run, folder)
    table.update_readme(run, readme, charts=tuple(str(path.relative_to(readme.parent)) for path in pictures))
