"""DataFrames and Series as data: a tabular data resource, bounded in every direction.

The form is that of https://specs.frictionlessdata.io/tabular-data-resource/ , which notebooks know as the type
`application/vnd.dataresource+json`, with two fields more: `shape`, how many rows and columns there are in truth, and
`truncated`, whether any of it was left out.

Loaded by path in the Python kernel's process when the first one is shown; it imports nothing of ours, nor pandas.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, Final

MAX_ROWS: Final = 1000
MAX_COLUMNS: Final = 100
MAX_BYTES: Final = 256 * 1024
"""How long all rows together may be, as JSON."""
MAX_TEXT_CHARACTERS: Final = 1000
"""The longest text in a cell, and the longest name."""

# The kinds of numpy's types, in the words of https://specs.frictionlessdata.io/table-schema/ .
_TYPES: Final = {
    "b": "boolean",
    "i": "integer",
    "u": "integer",
    "f": "number",
    "M": "datetime",
    "m": "duration",
}
_EXACT_INTEGERS: Final = range(-(2**63), 2**64)

Plain = bool | int | float | str | None


def data_resource(data: Any) -> dict[str, Any] | None:
    """Return a DataFrame or a Series as a tabular data resource; None where it cannot be read."""
    try:
        return _Table(data).resource()
    except Exception:  # noqa: BLE001 - whatever is odd about it, it is still shown in its other types
        return None


class _Table:
    def __init__(self, data: Any) -> None:
        series = data.ndim == 1
        self._shape = (len(data), 1 if series else data.shape[1])
        self._truncated = self._shape[0] > MAX_ROWS or self._shape[1] > MAX_COLUMNS
        head = data.iloc[:MAX_ROWS]
        self._frame = head.to_frame() if series else head.iloc[:, :MAX_COLUMNS]
        self._names: dict[str, None] = {}
        index = self._frame.index
        self._index = [
            (
                self._name(name, "index" if index.nlevels == 1 else f"level_{level}"),
                index.get_level_values(level),
            )
            for level, name in enumerate(index.names)
        ]
        self._columns = [
            (
                self._name(None if series and data.name is None else name, "values"),
                self._frame.iloc[:, position],
            )
            for position, name in enumerate(self._frame.columns)
        ]

    def resource(self) -> dict[str, Any]:
        fields = [{"name": name, "type": _type(each.dtype)} for name, each in (*self._index, *self._columns)]
        rows = list(self._rows())
        return {
            "schema": {"fields": fields, "primaryKey": [name for name, _ in self._index]},
            "data": rows,
            "shape": list(self._shape),
            "truncated": self._truncated,
        }

    def _rows(self) -> Iterator[dict[str, Plain]]:
        left_bytes = MAX_BYTES
        columns = [map(self._cell, each.tolist()) for _, each in (*self._index, *self._columns)]
        for values in zip(*columns, strict=True):
            row = dict(zip(self._names, values, strict=True))
            left_bytes -= len(json.dumps(row))
            if left_bytes < 0:
                self._truncated = True
                return
            yield row

    def _cell(self, value: Any) -> Plain:
        plain = _plain(value)
        if isinstance(plain, str) and len(plain) > MAX_TEXT_CHARACTERS:
            self._truncated = True
            return plain[:MAX_TEXT_CHARACTERS] + "…"
        return plain

    def _name(self, label: Any, default: str) -> str:
        """Return a name for a column that no other one has."""
        words = label if isinstance(label, tuple) else (default if label is None else label,)
        name = stem = ", ".join(map(str, words))[:MAX_TEXT_CHARACTERS]
        number = 0
        while name in self._names:
            number += 1
            name = f"{stem}.{number}"
        self._names[name] = None
        return name


def _type(dtype: Any) -> str:
    if str(dtype).startswith("str"):
        return "string"
    return _TYPES.get(getattr(dtype, "kind", "O"), "any")


def _plain(value: Any) -> Plain:
    if isinstance(value, float):  # most are: first, for speed
        if math.isfinite(value):
            return float(value)
        return None if math.isnan(value) else "INF" if value > 0 else "-INF"
    if isinstance(value, bool | str) or (isinstance(value, int) and value in _EXACT_INTEGERS):
        return value
    if (
        hasattr(value, "item") and getattr(value, "ndim", None) == 0
    ):  # a number of numpy's among other objects
        return _plain(value.item())
    if _is_missing(value):
        return None
    return str(value.isoformat() if hasattr(value, "isoformat") else value)


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)  # noqa: PLR0124 - true of NaT alone
    except Exception:  # noqa: BLE001 - an array, or pandas' NA, which is neither
        return type(value).__name__ == "NAType"
