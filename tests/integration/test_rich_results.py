"""Tables and charts arrive as typed data beside what people look at, bounded, and images with their size."""

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any, Final

import pytest

from aeolus_sandbox import CodeChunk, SessionManager
from aeolus_sandbox.tools.code_interpreter.charts import CHART_TYPE, BoxSummary, Chart
from aeolus_sandbox.tools.code_interpreter.tables import TABLE_TYPE, Table
from tests.integration.code_runs import Ran, run_code, shared_manager

pytestmark = pytest.mark.docker

IMPORTS: Final = "import matplotlib.pyplot as plt, numpy as np, pandas as pd\n"


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SessionManager]:
    async with shared_manager() as manager:
        yield manager


async def cell(shared: SessionManager, code: str, **settings: Any) -> Ran:
    """Run a cell in the kernel that this module's tests share."""
    return await run_code(shared, IMPORTS + code, session_id="rich", **settings)


# Tables.


async def table_of(shared: SessionManager, code: str) -> Table:
    chunks = [chunk for chunk in (await cell(shared, code)).chunks if chunk.table]
    assert len(chunks) == 1
    assert chunks[0].table is not None
    return chunks[0].table


async def test_data_frame_is_a_typed_table_beside_its_html(shared: SessionManager) -> None:
    code = """pd.DataFrame({
        'whole': [1, 2], 'part': [1.5, float('nan')], 'text': ['a', None], 'flag': [True, False],
        'time': pd.to_datetime(['2024-02-29 12:00', 'NaT']), 'span': pd.to_timedelta([90, 0], 's'),
        'sort': pd.Categorical(['x', 'y']), 'ends': [np.inf, -np.inf], 'any': [{'k': 1}, 10**30],
        'gap': pd.array([1, None], dtype='Int64')})"""
    [chunk] = (await cell(shared, code)).chunks
    assert (chunk.stream, chunk.mime_type) == ("result", "text/html")
    table = chunk.table
    assert table is not None
    assert {column.name: column.type for column in table.columns} == {
        "index": "integer",
        "whole": "integer",
        "part": "number",
        "text": "string",
        "flag": "boolean",
        "time": "datetime",
        "span": "duration",
        "sort": "any",
        "ends": "number",
        "any": "any",
        "gap": "integer",
    }
    assert table.rows == (
        (0, 1, 1.5, "a", True, "2024-02-29T12:00:00", "P0DT0H1M30S", "x", "INF", "{'k': 1}", 1),
        (1, 2, None, None, False, None, "P0DT0H0M0S", "y", "-INF", str(10**30), None),
    )
    assert (table.index, table.shape, table.truncated) == (("index",), (2, 10), False)


@pytest.mark.parametrize(
    ("code", "columns", "rows"),
    [
        ("pd.Series([7, 8], name='q')", ["index", "q"], ((0, 7), (1, 8))),
        ("pd.Series([7], index=['a'])", ["index", "values"], (("a", 7),)),
        (
            "pd.DataFrame([[1, 2, 3]], columns=['a', 'a', 'index'])",
            ["index", "a", "a.1", "index.1"],
            ((0, 1, 2, 3),),
        ),
        (
            "pd.Series([5], index=pd.MultiIndex.from_tuples([('a', 1)], names=['k', None]), name='v')",
            ["k", "level_1", "v"],
            (("a", 1, 5),),
        ),
        ("pd.DataFrame({('a', 'b'): [1], ('a', 'c'): [2]})", ["index", "a, b", "a, c"], ((0, 1, 2),)),
        ("pd.DataFrame({'a': []})", ["index", "a"], ()),
    ],
)
async def test_every_column_has_its_own_name(
    shared: SessionManager, code: str, columns: list[str], rows: tuple[tuple[object, ...], ...]
) -> None:
    table = await table_of(shared, code)
    assert ([column.name for column in table.columns], table.rows) == (columns, rows)
    assert not table.truncated


@pytest.mark.parametrize(
    ("code", "shape"),
    [
        ("pd.DataFrame({'a': range(5000)})", (5000, 1)),
        ("pd.DataFrame(np.random.rand(100_000, 50))", (100_000, 50)),
        ("pd.DataFrame(np.zeros((3, 5000)))", (3, 5000)),
        ("pd.DataFrame({'a': ['x' * 10_000_000]})", (1, 1)),
    ],
)
async def test_large_table_is_its_beginning_and_tells_its_true_shape(
    shared: SessionManager, code: str, shape: tuple[int, int]
) -> None:
    [chunk] = [chunk for chunk in (await cell(shared, code)).chunks if chunk.table]
    table = chunk.table
    assert table is not None
    assert (table.shape, table.truncated) == (shape, True)
    assert 0 < len(table.rows) <= 1000
    assert len(chunk.alternatives[TABLE_TYPE]) < 300 * 1024


async def test_table_that_cannot_be_read_is_shown_as_ever(shared: SessionManager) -> None:
    code = (
        "class Odd:\n    calls = 0\n    def __str__(self):\n        Odd.calls += 1\n        if Odd.calls > 2: raise ValueError\n"
        "        return 'odd'\n    __repr__ = __str__\npd.Series([Odd(), Odd()], name='o')"
    )
    ran = await cell(shared, code)
    assert [chunk.stream for chunk in ran.chunks] == ["result"]
    assert ran.chunks[0].table is None


# Charts.


async def drawn(shared: SessionManager, code: str, **settings: Any) -> list[CodeChunk]:
    ran = await cell(shared, code, **({"chart_data": True} | settings))
    assert ran.result.success, ran.result.as_text()
    return ran.of("image")


async def chart_of(shared: SessionManager, code: str) -> Chart:
    [image] = await drawn(shared, code)
    assert image.chart is not None
    return image.chart


CHARTS: Final[dict[str, tuple[str, list[tuple[str, str, tuple[object, ...], tuple[object, ...]]]]]] = {
    "lines": (
        "plt.plot([1, 2, 3], [4, 5, np.nan], label='up'); plt.plot([9], 'o'); plt.axhline(4.5, label='limit')",
        [
            ("line", "up", (1, 2, 3), (4, 5, None)),
            ("scatter", "", (0,), (9,)),
            ("other", "limit", (), (4.5, 4.5)),
        ],
    ),
    "scatter": ("plt.scatter([1, 2], [3, 4], label='s')", [("scatter", "s", (1, 2), (3, 4))]),
    "bars": ("plt.bar(['a', 'b'], [3, 4], label='sold')", [("bar", "sold", ("a", "b"), (3, 4))]),
    "bars that lie": ("plt.barh(['a', 'b'], [3, 4])", [("bar", "", (3, 4), ("a", "b"))]),
    "grouped bars": (
        "pd.DataFrame({'v': [1, 2], 'w': [3, 4]}, index=['r', 's']).plot.bar()",
        [("bar", "v", ("r", "s"), (1, 2)), ("bar", "w", ("r", "s"), (3, 4))],
    ),
    "histogram": ("plt.hist([1, 1, 2, 4], bins=[0, 2, 4])", [("histogram", "", (1, 3), (2, 2))]),
    "stairs": ("plt.stairs([5, 6])", [("histogram", "", (0.5, 1.5), (5, 6))]),
    "pie": ("plt.pie([1, 3], labels=['p', 'q'])", [("pie", "", ("p", "q"), (0.25, 0.75))]),
    "days": (
        "plt.plot(np.array(['2024-02-29', '2024-03-01'], 'datetime64[D]'), [1, 2])",
        [("line", "", ("2024-02-29T00:00:00+00:00", "2024-03-01T00:00:00+00:00"), (1, 2))],
    ),
    "time series": (
        "pd.DataFrame({'v': [1, 2]}, index=pd.date_range('2024-02-29', periods=2)).plot()",
        [("line", "v", ("2024-02-29", "2024-03-01"), (1, 2))],
    ),
    "error bars": ("plt.errorbar([1], [2], yerr=1, capsize=3)", [("line", "", (1,), (2,))]),
    "picture": ("plt.imshow(np.eye(3))", [("other", "", (), ())]),
    "three dimensions": (
        "plt.figure().add_subplot(projection='3d').plot([1], [2], [3])",
        [("other", "", (), ())],
    ),
    "nothing": ("plt.figure().add_subplot()", []),
}


@pytest.mark.parametrize(("code", "series"), CHARTS.values(), ids=CHARTS)
async def test_chart_tells_what_was_drawn(
    shared: SessionManager, code: str, series: list[tuple[str, str, tuple[object, ...], tuple[object, ...]]]
) -> None:
    chart = await chart_of(shared, code + ";")
    assert [(each.kind, each.label, each.x, each.y) for each in chart.series] == series
    assert not chart.truncated


@pytest.mark.parametrize(
    "settings", ["", "patch_artist=True, ", "notch=True, showmeans=True, ", "orientation='horizontal', "]
)
async def test_box_plot_tells_its_quartiles(shared: SessionManager, settings: str) -> None:
    code = f"plt.boxplot([[1, 2, 3, 4, 50], [2, 3, 4]], {settings}tick_labels=['A', 'B']);"
    boxes = (await chart_of(shared, code)).series
    assert [(box.kind, box.label) for box in boxes] == [("box", "A"), ("box", "B")]
    assert boxes[0].summary == BoxSummary(
        minimum=1, first_quartile=2, median=3, third_quartile=4, maximum=4, outliers=(50,)
    )
    assert boxes[1].summary == BoxSummary(
        minimum=2, first_quartile=2.5, median=3, third_quartile=3.5, maximum=4
    )


async def test_chart_tells_titles_scales_and_ticks(shared: SessionManager) -> None:
    code = """fig, (left, right) = plt.subplots(1, 2); fig.suptitle('Both')
left.bar(['a', 'b'], [1, 1000]); left.set(title='Left', xlabel='X', ylabel='Y', yscale='log')
right.plot([0, 1]); right.set_xticks([0, 1], ['none', 'all']); _ = right.twinx().plot([5, 6])"""
    chart = await chart_of(shared, code)
    left, right, second = chart.plots
    assert (chart.title, left.title, left.x.label, left.y.label) == ("Both", "Left", "X", "Y")
    assert (left.x.scale, left.y.scale, right.x.scale) == ("categorical", "log", "linear")
    assert (left.x.ticks, left.x.tick_labels) == (("a", "b"), ("a", "b"))
    assert (right.x.ticks, right.x.tick_labels) == ((0, 1), ("none", "all"))
    assert second.series[0].y == (5, 6)


async def test_long_series_is_told_in_even_steps(shared: SessionManager) -> None:
    [image] = await drawn(shared, "for _ in range(7): plt.plot(range(20_001));")
    chart = image.chart
    assert chart is not None
    first = chart.series[0]
    assert (chart.truncated, first.points, first.y[0], first.y[-1]) == (True, 20_001, 0, 20_000)
    assert [len(series.y) for series in chart.series] == [1000] * 5 + [0, 0]
    steps = [float(later or 0) - float(earlier or 0) for earlier, later in pairwise(first.y)]
    assert set(steps) <= {20, 21}
    assert len(image.alternatives[CHART_TYPE]) < 300 * 1024


async def test_series_without_number_are_cut_and_the_cut_is_told(shared: SessionManager) -> None:
    chart = await chart_of(shared, "_ = plt.figure().add_subplot().plot(np.zeros((2, 150)));")
    assert (len(chart.series), chart.truncated) == (100, True)


async def test_chart_data_comes_only_when_asked_for(shared: SessionManager) -> None:
    [image] = await drawn(shared, "plt.plot([1, 2]);", chart_data=False)
    assert image.chart is None
    assert CHART_TYPE not in image.alternatives


async def test_figure_that_is_shown_twice_is_one_image_with_one_chart(shared: SessionManager) -> None:
    [image] = await drawn(shared, "fig, ax = plt.subplots(); ax.plot([1, 2]); fig")
    assert image.chart is not None


# Images and other types.


@pytest.mark.parametrize(
    ("code", "mime", "size"),
    [
        (
            "plt.figure(figsize=(4, 3), dpi=100).savefig('/tmp/i.png'); plt.close(); Image('/tmp/i.png')",
            "image/png",
            (400, 300),
        ),
        ("pil.new('RGB', (30, 20)).save('/tmp/i.jpg'); Image('/tmp/i.jpg')", "image/jpeg", (30, 20)),
        ("pil.new('P', (30, 20)).save('/tmp/i.gif'); Image('/tmp/i.gif')", "image/gif", (30, 20)),
        ("pil.new('RGB', (30, 20)).save('/tmp/i.webp'); Image('/tmp/i.webp')", "image/webp", (30, 20)),
        (
            'SVG(\'<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"/>\')',
            "image/svg+xml",
            (30, 20),
        ),
        ("pil.new('RGB', (30, 20))", "image/png", (30, 20)),
    ],
)
async def test_image_tells_its_size(
    shared: SessionManager, code: str, mime: str, size: tuple[int, int]
) -> None:
    ran = await cell(shared, f"import PIL.Image as pil\nfrom IPython.display import Image, SVG\n{code}")
    [image] = ran.of("image")
    assert (image.mime_type, image.width, image.height) == (mime, *size)


@pytest.mark.parametrize(
    "mime",
    [
        "application/vnd.plotly.v1+json",
        "application/vnd.vegalite.v5+json",
        "application/vnd.vega.v5+json",
        "application/geo+json",
    ],
)
async def test_specification_is_the_content_and_html_stays_beside(shared: SessionManager, mime: str) -> None:
    code = f"display({{'{mime}': {{'a': 1}}, 'text/html': '<p>', 'text/plain': 't'}}, raw=True)"
    expected = "text/html" if mime == "application/geo+json" else mime
    [chunk] = (await cell(shared, code)).of("display")
    assert chunk.mime_type == expected
    assert {chunk.mime_type, *chunk.alternatives} == {mime, "text/html", "text/plain"}


async def test_pdf_is_bytes(shared: SessionManager) -> None:
    ran = await cell(shared, "display({'application/pdf': 'JVBERi0='}, raw=True)")
    [chunk] = ran.of("display")
    assert (chunk.mime_type, chunk.data, chunk.as_text()) == (
        "application/pdf",
        b"%PDF-",
        "[application/pdf, 5 bytes]",
    )


async def test_what_was_left_out_is_told_as_data(shared: SessionManager) -> None:
    code = (
        "deep = []\nfor _ in range(100): deep = [deep]\n"
        "display({'image/png': 'A' * 21_000_000, 'a/deep': deep, 'text/plain': 'there'}, raw=True, "
        "metadata={'image/png': {'width': 5}})"
    )
    [chunk] = (await cell(shared, code)).of("display")
    assert (chunk.truncated, chunk.metadata) == (True, {"image/png": '{"width":5}'})
    assert chunk.omitted["image/png"] > 21_000_000
    assert set(chunk.omitted) == {"image/png", "a/deep"}
    assert chunk.content.startswith("there\n[")


async def test_long_error_and_long_value_are_cut_and_say_so(shared: SessionManager) -> None:
    ran = await cell(shared, "raise ValueError('x' * 100_000)")
    [error] = ran.of("error")
    assert error.truncated
    assert len(ran.error_value) < 20_000
    ran = await cell(shared, "'x' * 100_000")
    assert len(ran.of("result")[0].content) == 100_002
    assert ran.result.result is not None
    assert len(ran.result.result) <= 8000
    assert "characters left out" in ran.result.result
