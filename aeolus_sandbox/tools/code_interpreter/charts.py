"""The data in a chart, as the code that drew it gave it: what a reader of the picture would read off it."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

CHART_TYPE: Final = "application/vnd.aeolus.chart+json"
"""The type under which a chart's data lies beside its picture."""
MAX_CHART_CHARACTERS: Final = 1024 * 1024

_TEXT_CHARACTERS: Final = 500
_POINTS: Final = 5000

SeriesKind = Literal["line", "scatter", "bar", "histogram", "pie", "box", "other"]
_KINDS: Final = frozenset({"line", "scatter", "bar", "histogram", "pie", "box", "other"})

ChartText = Annotated[str, Field(max_length=_TEXT_CHARACTERS)]
Number = Annotated[float, Field(allow_inf_nan=False)]
ChartValue = Number | ChartText | None
"""A number, or the name of a category, or a time as ISO 8601; None where there is no value."""
Values = Annotated[tuple[ChartValue, ...], Field(max_length=_POINTS)]


def _known_kind(kind: object) -> object:
    return kind if isinstance(kind, str) and kind in _KINDS else "other"


class _ChartPart(BaseModel):
    # What is not known is passed over: code in a sandbox can put anything there.
    model_config = ConfigDict(frozen=True, extra="ignore")


class BoxSummary(_ChartPart):
    """What one box of a box plot says."""

    minimum: Number
    """The end of the lower whisker."""
    first_quartile: Number
    median: Number
    third_quartile: Number
    maximum: Number
    """The end of the upper whisker."""
    outliers: Annotated[tuple[Number, ...], Field(max_length=_POINTS)] = ()


class ChartSeries(_ChartPart):
    """One line, one group of bars, one cloud of points, one pie, or one box."""

    kind: Annotated[SeriesKind, BeforeValidator(_known_kind)]
    """What it is drawn as, as far as that can be told; bars that touch are a `histogram`. Of `other` ones, such as
    pictures, areas and reference lines, only what fits is told."""
    label: ChartText = ""
    """As in the legend; of a box, the name of its place."""
    x: Values = ()
    """Where the points are; of a pie, the names of its parts; of bars, their middles or their names."""
    y: Values = ()
    """What they are; of a pie, each part's share of the whole, from 0 to 1."""
    points: Annotated[int, Field(ge=0)] = 0
    """How many points there are in truth: of too many, evenly spaced ones are told."""
    summary: BoxSummary | None = None
    """Of a box alone."""


class ChartAxis(_ChartPart):
    """One axis."""

    label: ChartText = ""
    scale: ChartText = "linear"
    """`linear`, `log`, `symlog`, `logit`, `categorical`, `datetime`, or another name of the plot library's."""
    ticks: Values = ()
    tick_labels: Annotated[tuple[ChartText, ...], Field(max_length=_POINTS)] = ()


class ChartPlot(_ChartPart):
    """One system of axes with what is drawn in it."""

    title: ChartText = ""
    x: ChartAxis = ChartAxis()
    y: ChartAxis = ChartAxis()
    series: Annotated[tuple[ChartSeries, ...], Field(max_length=1000)] = ()


class Chart(_ChartPart):
    """One figure."""

    title: ChartText = ""
    """The figure's, or that of its only plot."""
    plots: Annotated[tuple[ChartPlot, ...], Field(max_length=100)] = ()
    """Its systems of axes; two of them share a place where there is a second scale."""
    truncated: bool = False
    """Whether something of it was left out, such as points of a long series."""

    @property
    def series(self) -> tuple[ChartSeries, ...]:
        """All series of all plots."""
        return tuple(series for plot in self.plots for series in plot.series)


def parse_chart(text: str | None) -> Chart | None:
    """Return the chart that a text of `CHART_TYPE` holds; None where it holds none."""
    if text is None or len(text) > MAX_CHART_CHARACTERS:
        return None
    try:
        return Chart.model_validate_json(text)
    except ValidationError:  # the code can show anything under this type
        return None
