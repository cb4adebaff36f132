"""The fields of a log line: a mapping that is read out of its JSON when somebody first looks."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Self

import msgspec
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from aeolus_sandbox.guest.logs.fields import FIELD_READERS

_decoder: Final = msgspec.json.Decoder()


class LogFields(Mapping[str, Any]):
    """The fields, by name; most readers look at few lines' fields, and taking them apart costs more than the line."""

    __slots__ = ("_data", "_reader")

    def __init__(self, data: bytes | str = "{}", reader: str | None = None) -> None:
        """Take what holds the fields.

        Args:
            data: A JSON object, or a line that a reader reads; what is none has no fields.
            reader: One of the `FIELD_READERS`; None: it is JSON.
        """
        self._data: bytes | str | dict[str, Any] = data
        self._reader = reader

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Return these fields."""
        made = cls()
        made._data = dict(fields)
        return made

    def mapped(self, change: Callable[[str], str]) -> "LogFields":
        """Return these fields with every text in them changed.

        Boundary: a filter sees them as one text first, because it may know a secret by its name alone.
        """
        text = json.dumps(self._fields(), ensure_ascii=False)
        changed = change(text)
        fields = self._fields() if changed == text else _object(changed)
        return LogFields.of({change(name): _mapped(value, change) for name, value in fields.items()})

    def __getitem__(self, name: str) -> Any:
        return self._fields()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields())

    def __len__(self) -> int:
        return len(self._fields())

    def __repr__(self) -> str:
        return f"LogFields({self._fields()!r})"

    def _fields(self) -> dict[str, Any]:
        if not isinstance(self._data, dict):
            self._data = _read(self._data, self._reader)
        return self._data

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Take any mapping of names to values, and be written as an object."""
        made = core_schema.no_info_after_validator_function(cls.of, handler(dict[str, Any]))
        return core_schema.json_or_python_schema(
            json_schema=made,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), made]),
            serialization=core_schema.plain_serializer_function_ser_schema(dict),
        )


def _read(data: bytes | str, reader: str | None) -> dict[str, Any]:
    read = FIELD_READERS.get(reader) if reader is not None else None
    return _object(data) if read is None else read(data if isinstance(data, str) else data.decode())


def _object(data: bytes | str) -> dict[str, Any]:
    try:
        found = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError):  # a number that is out of range, say
        found = _leniently(data)
    return found if isinstance(found, dict) else {}


def _leniently(data: bytes | str) -> Any:
    try:
        return json.loads(data if isinstance(data, str) else data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value of JSON with its texts changed; what is nested too deeply is left out."""
    try:
        return _mapped_value(value, change)
    except RecursionError:
        return None


def _mapped_value(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped_value(each, change) for each in value]
    if isinstance(value, dict):
        return {change(name): _mapped_value(each, change) for name, each in value.items()}
    return value
