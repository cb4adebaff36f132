"""Charts and tables of code are typed data, and what is none of them is nothing."""

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox import CodeChunk
from aeolus_sandbox.tools.code_interpreter.charts import (
    CHART_TYPE,
    MAX_CHART_CHARACTERS,
    BoxSummary,
    parse_chart,
)
from aeolus_sandbox.tools.code_interpreter.tables import (
    MAX_TABLE_CHARACTERS,
    TABLE_TYPE,
    TableColumn,
    parse_table,
)

SERIES: Final[dict[str, Any]] = {
    "kind": "line",
    "label": "l",
    "x": [1, "b", None],
    "y": [0.5, 1, None],
    "points": 3,
}
AXIS: Final[dict[str, Any]] = {"label": "X", "scale": "log", "ticks": [1, 10], "tick_labels": ["1", "10"]}
BOX: Final[dict[str, Any]] = {
    "minimum": 1,
    "first_quartile": 2,
    "median": 3,
    "third_quartile": 4,
    "maximum": 5,
    "outliers": [9],
}
TABLE: Final[dict[str, Any]] = {
    "schema": {"fields": [{"name": "index", "type": "integer"}, {"name": "a"}], "primaryKey": ["index"]},
    "data": [{"index": 0, "a": "x"}, {"index": 1, "a": None, "more": 5}, {"index": 2}],
    "shape": [9, 1],
    "truncated": True,
}


def chart_of(series: dict[str, Any], **settings: Any) -> str:
    return json.dumps({"title": "T", "plots": [{"x": AXIS, "series": [series]}], **settings})


def test_chart_is_read_as_it_was_told() -> None:
    chart = parse_chart(chart_of(SERIES | {"unknown": 1}, unknown=[1]))
    assert chart is not None
    assert (chart.title, chart.truncated) == ("T", False)
    [series] = chart.series
    assert (series.kind, series.label, series.x, series.y) == (
        "line",
        "l",
        (1.0, "b", None),
        (0.5, 1.0, None),
    )
    assert (chart.plots[0].x.scale, chart.plots[0].x.ticks) == ("log", (1, 10))


def test_box_has_its_numbers() -> None:
    chart = parse_chart(chart_of({"kind": "box", "label": "A", "summary": BOX}))
    assert chart is not None
    assert chart.series[0].summary == BoxSummary(**BOX)


@pytest.mark.parametrize("kind", ["violin", "", 5, None, ["line"]])
def test_kind_that_nobody_knows_is_another_one(kind: Any) -> None:
    chart = parse_chart(chart_of({"kind": kind}))
    assert chart is not None
    assert chart.series[0].kind == "other"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "[]",
        "null",
        "{",
        "\x00",
        '{"plots":5}',
        '{"plots":[{"series":[{"label":"no kind"}]}]}',
        '{"plots":[{"series":[{"kind":"line","x":[[1]]}]}]}',
        '{"plots":[{"series":[{"kind":"line","x":[1e999]}]}]}',
        '{"plots":[{"series":[{"kind":"line","points":-1}]}]}',
        '{"plots":[{"series":[{"kind":"box","summary":{"median":1}}]}]}',
        json.dumps({"title": "x" * 501}),
        json.dumps({"plots": [{}] * 101}),
        json.dumps({"plots": [{"series": [{"kind": "line", "x": [1] * 5001}]}]}),
        " " * MAX_CHART_CHARACTERS + "{}",
        "[" * 100_000,
    ],
)
def test_what_is_no_chart_is_none(text: str) -> None:
    assert parse_chart(text) is None
    assert CodeChunk(stream="image", content="", alternatives={CHART_TYPE: text}).chart is None


def test_table_is_read_as_it_was_told() -> None:
    table = parse_table(json.dumps(TABLE))
    assert table is not None
    assert table.columns == (TableColumn(name="index", type="integer"), TableColumn(name="a", type="any"))
    assert table.rows == ((0, "x"), (1, None), (2, None))
    assert (table.index, table.shape, table.truncated) == (("index",), (9, 1), True)


def test_values_of_a_table_keep_their_types() -> None:
    row = {"a": True, "b": 1, "c": 1.0, "d": "1", "e": None}
    fields = [{"name": name} for name in row]
    table = parse_table(json.dumps({"schema": {"fields": fields}, "data": [row]}))
    assert table is not None
    assert [(type(value), value) for value in table.rows[0]] == [
        (bool, True),
        (int, 1),
        (float, 1.0),
        (str, "1"),
        (type(None), None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema":{"fields":[{}]},"data":[]}',
        '{"schema":{"fields":[]},"data":[[1]]}',
        '{"schema":{"fields":[]},"data":[{"a":[1]}]}',
        '{"schema":{"fields":[]},"data":[],"shape":[1]}',
        json.dumps({"schema": {"fields": [{"name": "a"}] * 1001}, "data": []}),
        json.dumps({"schema": {"fields": []}, "data": [{}] * 10_001}),
        " " * MAX_TABLE_CHARACTERS + json.dumps(TABLE),
    ],
)
def test_what_is_no_table_is_none(text: str) -> None:
    assert parse_table(text) is None
    assert CodeChunk(stream="result", content="", alternatives={TABLE_TYPE: text}).table is None


def test_output_that_is_neither_has_neither() -> None:
    chunk = CodeChunk(stream="stdout", content="{}")
    assert (chunk.chart, chunk.table) == (None, None)


def test_data_that_is_shown_by_itself_is_read_too() -> None:
    chunk = CodeChunk(stream="display", content=json.dumps(TABLE), mime_type=TABLE_TYPE)
    assert chunk.table == parse_table(json.dumps(TABLE))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["x", "y", "kind", "summary", "data"]), inner)
    ),
    max_leaves=10,
)


@given(series=json_values, rows=json_values)
def test_no_json_does_harm(series: Any, rows: Any) -> None:
    parse_chart(json.dumps({"plots": [{"series": series}]}))
    parse_table(json.dumps({"schema": {"fields": rows}, "data": rows, "shape": series}))
