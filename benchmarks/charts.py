"""Charts of a run: bars for what is compared with an even line, boxes and dots for samples. The door to matplotlib."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.results import Benchmark, Grid, Series, number

_WIDTH_IN: Final = 9.0
_ROW_IN: Final = 0.3
_FRAME_IN: Final = 1.1
"""Title, axis and margins of a panel."""
_DPI: Final = 100
_WIDE_RANGE: Final = 30.0
"""From how many times the smallest number on an axis is logarithmic."""
Panel = Grid | dict[str, Series]
"""What is drawn on one pair of axes: a grid, or series of one unit."""


def draw(benchmark: Benchmark, path: Path) -> bool:
    """Draw a benchmark as a PNG file; contenders that are not available, or all of whose rounds failed, are left out.

    Returns:
        Whether there was anything to draw.
    """
    panels = _panels(benchmark)
    if not panels:
        return False
    rows = [_rows(panel) for panel in panels]
    heights = [each * _ROW_IN + _FRAME_IN for each in rows]
    figure = Figure(figsize=(_WIDTH_IN, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)  # draws into memory: no screen is needed, and no state is shared
    figure.suptitle(benchmark.name)
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        if isinstance(panel, Grid):
            _draw_grid(axis, panel)
        else:
            _draw_samples(axis, panel)
    figure.savefig(path, dpi=_DPI)
    return True


def _panels(benchmark: Benchmark) -> list[Panel]:
    grids: list[Panel] = [grid for grid in benchmark.grids if _bars(grid)]
    if grids:
        return grids
    by_unit: dict[str, dict[str, Series]] = {}
    for name, series in benchmark.series.items():
        if series.good:
            by_unit.setdefault(series.unit, {})[name] = series
    return list(by_unit.values())


def _rows(panel: Panel) -> int:
    return len(panel) if isinstance(panel, dict) else sum(map(len, _bars(panel).values()))


def _bars(grid: Grid) -> Mapping[str, Mapping[str, float]]:
    """Return what is there of a grid: its numbers by row and column."""
    bars = {
        name: {column: value for column, value in zip(grid.columns, row, strict=True) if value is not None}
        for name, row in grid.rows.items()
    }
    return {name: row for name, row in bars.items() if row}


def _draw_grid(axis: Any, grid: Grid) -> None:
    bars = _bars(grid)
    places: dict[str, list[tuple[float, float]]] = {column: [] for column in grid.columns}
    middles = []
    place = 0.0
    for row in bars.values():
        middles.append(place + (len(row) - 1) / 2)
        for column, value in row.items():
            places[column].append((place, value))
            place += 1
        place += 0.6
    start = grid.even if grid.even is not None else 0.0
    for column, points in places.items():
        if points:
            heights, values = zip(*points, strict=True)
            drawn = axis.barh(
                heights, [value - start for value in values], left=start, height=0.9, label=column
            )
            axis.bar_label(drawn, [number(value) for value in values], padding=3, fontsize="x-small")
    axis.set_yticks(middles, list(bars))
    _finish(axis, [value for row in bars.values() for value in row.values()], grid.unit)
    axis.set_title(grid.title, fontsize="medium")
    if grid.even is not None:
        axis.axvline(grid.even, color="black", linewidth=0.8)
    axis.legend(fontsize="small")


def _draw_samples(axis: Any, series: Mapping[str, Series]) -> None:
    samples = [each.good for each in series.values()]
    places = range(len(samples))
    axis.boxplot(
        samples, positions=places, orientation="horizontal", showfliers=False, widths=0.6, whis=(0, 95)
    )
    for place, values in zip(places, samples, strict=True):
        axis.plot(values, [place] * len(values), linestyle="", marker="|", alpha=0.5, color="tab:blue")
    axis.set_yticks(places, list(series))
    unit = next(iter(series.values())).unit
    _finish(axis, [value for values in samples for value in values], unit)


def _finish(axis: Any, values: list[float], unit: str) -> None:
    axis.invert_yaxis()  # the first one on top, as in the tables
    axis.set_xlabel(unit)
    axis.grid(axis="x", alpha=0.3)
    if min(values) > 0 and max(values) / min(values) > _WIDE_RANGE:
        axis.set_xscale("log")
    elif min(values) >= 0:
        axis.set_xlim(left=0)
    axis.margins(x=0.1)
