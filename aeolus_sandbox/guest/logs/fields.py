"""The fields of a line that is its own record of them: read out of it where somebody looks."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from aeolus_sandbox.guest.logs.access_fields import access_fields
from aeolus_sandbox.guest.logs.lines import Parsed

_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


def _access(line: str, *, combined: bool) -> dict[str, Any]:
    fields = access_fields(line, combined=combined) or {}
    fields.pop("time", None)
    return fields


def _object(line: str) -> dict[str, Any]:
    try:
        return _decode_object(line)
    except (msgspec.MsgspecError, RecursionError, ValueError):  # a number that is out of range, say
        return {}


FIELD_READERS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "clf": lambda line: _access(line, combined=False),
    "combined": lambda line: _access(line, combined=True),
}
"""By their names, what reads the fields of a line that is no JSON object."""


def fields_of(parsed: Parsed, line: str) -> dict[str, Any]:
    """Return the fields of a line that was parsed, whether they were read already or not."""
    if parsed.fields is not None:
        return parsed.fields
    if parsed.is_object:
        return _object(line)
    return {} if parsed.reader is None else FIELD_READERS[parsed.reader](line)
