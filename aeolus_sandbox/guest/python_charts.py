"""The data in a matplotlib figure: what a reader of the picture would read off it, bounded in every direction.

Loaded by path in the Python kernel's process when the first figure is read; it imports nothing of ours.
"""

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from matplotlib import collections, container, dates, lines, patches, ticker

MAX_PLOTS: Final = 32
MAX_SERIES: Final = 100
MAX_POINTS: Final = 1000
"""How many points of one series are told; of more, evenly spaced ones."""
MAX_ALL_POINTS: Final = 5000
MAX_TICKS: Final = 100
MAX_TEXT_CHARACTERS: Final = 500
_GROUP_REACH: Final = 0.5
"""How far from its place a bar can be that shares it with others; named places are 1 apart."""

Value = float | str | None
Record = dict[str, Any]
ToValue = Callable[[float], Value]


def chart_of(figure: Any) -> Record | None:
    """Return what is in a figure, in the words of the host's `Chart`; None where it cannot be read."""
    try:
        return _FigureReader().read(figure)
    except Exception:  # noqa: BLE001 - an artist that nobody has foreseen: the picture is still there
        return None


class _FigureReader:
    def __init__(self) -> None:
        self._points_left = MAX_ALL_POINTS

    def read(self, figure: Any) -> Record:
        shown = [axes for axes in figure.axes if axes.get_visible() and axes.get_label() != "<colorbar>"]
        plots = [self._plot(axes) for axes in shown[:MAX_PLOTS]]
        cut = len(shown) > MAX_PLOTS or any(plot.pop("cut") for plot in plots)
        title = _text(figure.get_suptitle()) or (plots[0]["title"] if len(plots) == 1 else "")
        return {"title": title, "plots": plots, "truncated": cut}

    def _plot(self, axes: Any) -> Record:
        series = list(_AxesReader(axes, self._sampled).series())
        cut = len(series) > MAX_SERIES or any(len(each["x"] or each["y"]) < each["points"] for each in series)
        return {
            "title": _text(axes.get_title()),
            "x": _axis(axes.xaxis),
            "y": _axis(axes.yaxis),
            "series": series[:MAX_SERIES],
            "cut": cut,
        }

    def _sampled(self, points: Sequence[Any]) -> list[int]:
        """Return the places of the points that are told."""
        room = min(MAX_POINTS, self._points_left)
        told = min(len(points), room)
        self._points_left -= told
        if told == len(points):
            return list(range(told))
        return [round(place * (len(points) - 1) / max(1, told - 1)) for place in range(told)]


class _AxesReader:
    """What one system of axes shows, by the kind of its artists."""

    def __init__(self, axes: Any, sampled: Callable[[Sequence[Any]], list[int]]) -> None:
        self._axes = axes
        self._sampled = sampled
        self._x, self._y = _to_value(axes.xaxis), _to_value(axes.yaxis)
        self._told: set[int] = set()
        """Artists that are part of something, by id."""

    def series(self) -> Iterator[Record]:
        if self._axes.name == "3d":
            yield _series("other", "")
            return
        for each in self._axes.containers:
            yield from self._container(each)
        for box in boxes_of(self._axes.lines):
            self._told.update(map(id, box.parts))
            yield self._box(box)
        for line in self._left(self._axes.lines):
            yield self._line(line)
        for each in self._left(self._axes.collections):
            yield self._collection(each)
        yield from self._patches()
        for image in self._axes.images:
            yield _series("other", image.get_label())

    def _left(self, artists: Iterable[Any]) -> Iterator[Any]:
        return (each for each in artists if each.get_visible() and id(each) not in self._told)

    def _container(self, each: Any) -> Iterator[Record]:
        if isinstance(each, container.BarContainer):
            self._told.update(map(id, each.patches))
            yield self._bars(each)
        elif isinstance(each, container.ErrorbarContainer):
            _, caps, bars = each.lines
            self._told.update(map(id, (*caps, *bars)))
        elif isinstance(each, container.StemContainer):
            self._told.update(map(id, (each.stemlines, each.baseline)))

    def _bars(self, bars: Any) -> Record:
        upright = bars.orientation != "horizontal"
        axis, to_place, to_size = (
            (self._axes.xaxis, self._x, self._y) if upright else (self._axes.yaxis, self._y, self._x)
        )
        spans = [_span(each, upright=upright) for each in bars.patches]
        told = self._sampled(spans)
        centers = [(start + end) / 2 for start, end in spans]
        names = _names_of(centers, _tick_names(axis))
        places = [names[i] if names else to_place(centers[i]) for i in told]
        sizes = [to_size(_size(bars.patches[i], upright=upright)) for i in told]
        kind = "histogram" if not names and _touch(spans) else "bar"
        x, y = (places, sizes) if upright else (sizes, places)
        return _series(kind, bars.get_label(), x, y, points=len(spans))

    def _box(self, box: "Box") -> Record:
        name = _tick_names(self._axes.xaxis if box.upright else self._axes.yaxis).get(round(box.place, 6))
        told = self._sampled(box.outliers)
        summary = {**box.summary, "outliers": [box.outliers[i] for i in told]}
        return _series("box", name or f"{box.place:g}", summary=summary)

    def _line(self, line: Any) -> Record:
        x_counts, y_counts = line.get_transform().contains_branch_seperately(self._axes.transData)
        marked = line.get_linestyle() in {"None", "none", "", " "}
        kind = "other" if not (x_counts and y_counts) else "scatter" if marked else "line"
        x, y = line.get_xdata(orig=False), line.get_ydata(orig=False)
        told = self._sampled(y)
        return _series(
            kind,
            line.get_label(),
            [self._x(x[i]) for i in told] if x_counts else [],
            [self._y(y[i]) for i in told] if y_counts else [],
            points=len(y),
        )

    def _collection(self, each: Any) -> Record:
        if not isinstance(each, collections.PathCollection):
            return _series("other", each.get_label())
        points = each.get_offsets().tolist()  # what is masked becomes None
        told = self._sampled(points)
        x, y = [self._x(_number(points[i][0])) for i in told], [self._y(_number(points[i][1])) for i in told]
        return _series("scatter", each.get_label(), x, y, points=len(points))

    def _patches(self) -> Iterator[Record]:
        wedges = [each for each in self._left(self._axes.patches) if isinstance(each, patches.Wedge)]
        if wedges:
            told = self._sampled(wedges)
            labels: list[Value] = [_label(wedges[i].get_label()) for i in told]
            shares: list[Value] = [round((wedges[i].theta2 - wedges[i].theta1) / 360, 6) for i in told]
            yield _series("pie", "", labels, shares, points=len(wedges))
        for each in self._left(self._axes.patches):
            if isinstance(each, patches.StepPatch):
                values, edges, _ = each.get_data()
                told = self._sampled(values)
                centers = [self._x((edges[i] + edges[i + 1]) / 2) for i in told]
                yield _series(
                    "histogram", each.get_label(), centers, [self._y(values[i]) for i in told], len(values)
                )


class Box:
    """One box of a box plot, put together from the lines that draw it."""

    def __init__(self, place: float, parts: list[Any], *, upright: bool) -> None:
        self.place = place
        self.parts = parts
        self.upright = upright
        across, along = (_xs, _ys) if upright else (_ys, _xs)
        whiskers = [along(each) for each in parts if len(across(each)) == 2 and len({*across(each)}) == 1]
        (first, lowest), (third, highest) = whiskers[:2]
        median = next(along(each)[0] for each in parts if _is_median(each))
        self.summary = {
            "minimum": lowest,
            "first_quartile": first,
            "median": median,
            "third_quartile": third,
            "maximum": highest,
        }
        last = parts[-1]
        self.outliers = along(last) if last.get_linestyle() in {"None", "none", "", " "} else []


def boxes_of(drawn: Iterable[Any]) -> Iterator[Box]:
    """Yield the box plots among lines.

    matplotlib keeps no trace of them but what `Axes.bxp` draws for each: around the median, whose sticky edges lie half
    a unit beside the place, one line after the other whose middle is the place.
    """
    all_lines = list(drawn)
    for number, line in enumerate(all_lines):
        edges = line.sticky_edges
        if not _is_median(line):
            continue
        upright = bool(edges.x)
        place = float(sum((edges.x or edges.y)[:2])) / 2
        across = _xs if upright else _ys
        start = end = number
        while start > 0 and _is_centered(across(all_lines[start - 1]), place):
            start -= 1
        while end + 1 < len(all_lines) and _is_centered(across(all_lines[end + 1]), place, or_empty=True):
            end += 1
        try:
            yield Box(place, all_lines[start : end + 1], upright=upright)
        except (ValueError, StopIteration):  # lines that only look like it
            continue


def _is_median(line: lines.Line2D) -> bool:
    edges = line.sticky_edges
    return any(len(each) == 2 and abs(each[1] - each[0] - 1) < 1e-9 for each in (edges.x, edges.y))


def _is_centered(values: list[float], place: float, *, or_empty: bool = False) -> bool:
    if not values:
        return or_empty
    return abs((min(values) + max(values)) / 2 - place) < 1e-9


def _xs(line: lines.Line2D) -> list[float]:
    return [float(value) for value in line.get_xdata(orig=False)]


def _ys(line: lines.Line2D) -> list[float]:
    return [float(value) for value in line.get_ydata(orig=False)]


def _span(bar: Any, *, upright: bool) -> tuple[float, float]:
    start, size = (bar.get_x(), bar.get_width()) if upright else (bar.get_y(), bar.get_height())
    return float(start), float(start + size)


def _size(bar: Any, *, upright: bool) -> float:
    return float(bar.get_height() if upright else bar.get_width())


def _touch(spans: list[tuple[float, float]]) -> bool:
    """Return whether each bar begins where the one before it ends, as those of a histogram do."""
    reach = max((end - start for start, end in spans), default=0)
    pairs = itertools.pairwise(spans)
    return len(spans) > 1 and all(abs(a[1] - b[0]) <= reach * 1e-6 for a, b in pairs)


def _axis(axis: Any) -> Record:
    start, end = sorted(axis.get_view_interval())
    places = [place for place in axis.get_majorticklocs() if start <= place <= end][:MAX_TICKS]
    names = [_text(name) for name in axis.get_major_formatter().format_ticks(places)]
    to_value = _to_value(axis)
    return {
        "label": _text(axis.get_label_text()),
        "scale": _scale(axis),
        "ticks": [to_value(place) for place in places],
        "tick_labels": names,
    }


def _scale(axis: Any) -> str:
    if _categories(axis):
        return "categorical"
    if isinstance(axis.get_major_locator(), dates.DateLocator) or _period_frequency(axis):
        return "datetime"
    return _text(axis.get_scale())


def _to_value(axis: Any) -> ToValue:
    """Return how a position on an axis is told: as a category, a time, or a number."""
    if categories := _categories(axis):
        return lambda number: categories.get(number, _number(number))
    if isinstance(axis.get_major_locator(), dates.DateLocator):
        return lambda number: dates.num2date(number).isoformat() if math.isfinite(number) else None
    if frequency := _period_frequency(axis):
        period = sys.modules["pandas"].Period
        return lambda number: (
            str(period(ordinal=int(number), freq=frequency)) if math.isfinite(number) else None
        )
    return _finite


def _categories(axis: Any) -> dict[float, str]:
    mapping = getattr(axis.get_units(), "_mapping", None) or {}
    return {float(place): _text(name) for name, place in list(mapping.items())[:MAX_ALL_POINTS]}


def _period_frequency(axis: Any) -> Any:
    """Return the frequency of an axis on which pandas has drawn a time series: its numbers count periods."""
    return getattr(axis, "freq", None) if "pandas" in sys.modules else None


def _tick_names(axis: Any) -> dict[float, str]:
    """Return the names that were given to places on an axis."""
    if not isinstance(axis.get_major_locator(), ticker.FixedLocator):
        return _categories(axis)
    places = axis.get_majorticklocs()[:MAX_ALL_POINTS]
    names = axis.get_major_formatter().format_ticks(places)
    return {round(float(place), 6): _text(name) for place, name in zip(places, names, strict=True)}


def _names_of(centers: list[float], names: dict[float, str]) -> list[str] | None:
    """Return the name of the place that each bar of a group stands at; None where they have none."""
    found = []
    for center in centers:
        place = min(names, key=lambda each: abs(each - center), default=math.inf)
        if abs(place - center) >= _GROUP_REACH:
            return None
        found.append(place)
    return [names[place] for place in found] if len(set(found)) == len(found) else None


def _series(
    kind: str,
    label: Any,
    x: Sequence[Value] = (),
    y: Sequence[Value] = (),
    points: int | None = None,
    summary: Record | None = None,
) -> Record:
    count = len(y) if points is None else points
    return {
        "kind": kind,
        "label": _label(label),
        "x": list(x),
        "y": list(y),
        "points": count,
        "summary": summary,
    }


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _finite(number: float) -> Value:
    return float(number) if math.isfinite(number) else None


def _label(text: Any) -> str:
    """Return a label; what matplotlib made up itself begins with an underscore."""
    return "" if str(text).startswith("_") else _text(text)


def _text(text: Any) -> str:
    return str(text)[:MAX_TEXT_CHARACTERS]
