"""A DataFrame or a Series as data: columns with types, and rows."""

from typing import Annotated, Final

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError

TABLE_TYPE: Final = "application/vnd.dataresource+json"
"""The type under which a table's data lies beside its HTML (https://specs.frictionlessdata.io/tabular-data-resource/)."""
MAX_TABLE_CHARACTERS: Final = 1024 * 1024

_COLUMNS: Final = 1000
_ROWS: Final = 10_000

CellValue = bool | int | float | str | None


class TableColumn(BaseModel):
    """One column."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Annotated[str, Field(max_length=2000)]
    """Its name; no two columns of a table have the same."""
    type: Annotated[str, Field(max_length=100)] = "any"
    """`boolean`, `integer`, `number`, `string`, `datetime`, `duration` or `any`, as in a table schema."""


class Table(BaseModel):
    """The first rows of a table; columns of its index come first."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    columns: Annotated[
        tuple[TableColumn, ...], Field(max_length=_COLUMNS, validation_alias=AliasPath("schema", "fields"))
    ]
    index: Annotated[
        tuple[str, ...], Field(max_length=_COLUMNS, validation_alias=AliasPath("schema", "primaryKey"))
    ] = ()
    """Names of the columns that are the index."""
    records: Annotated[tuple[dict[str, CellValue], ...], Field(max_length=_ROWS, validation_alias="data")]
    """The rows that are held, by name of column. Times are ISO 8601, infinity is `INF` or `-INF`, and what is missing
    is None."""
    shape: tuple[int, int] | None = None
    """How many rows and columns there are in truth, the index not counted."""
    truncated: bool = False
    """Whether rows, columns or parts of texts are left out."""

    @property
    def rows(self) -> tuple[tuple[CellValue, ...], ...]:
        """The rows that are held, in the order of the columns."""
        return tuple(tuple(each.get(column.name) for column in self.columns) for each in self.records)


def parse_table(text: str | None) -> Table | None:
    """Return the table that a text of `TABLE_TYPE` holds; None where it holds none."""
    if text is None or len(text) > MAX_TABLE_CHARACTERS:
        return None
    try:
        return Table.model_validate_json(text)
    except ValidationError:  # the code can show anything under this type
        return None
