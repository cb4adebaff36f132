"""Events as JSON that is exact and can be shown: what traces are made of.

Boundary: ASCII alone; every control character, also DEL, C1 and the orders of text direction, is escaped, and so are
lone surrogates, which no UTF-8 holds.
"""

import json
import math
from typing import Any, Final

from pydantic import TypeAdapter

from aeolus_sandbox.events import StreamEvent

_DELETE: Final = "\x7f"  # the one control character of ASCII that `json` leaves as it is
_adapter: Final[TypeAdapter[Any]] = TypeAdapter(StreamEvent)


def event_to_json(event: StreamEvent) -> str:
    """Return an event as one line of JSON."""
    return to_json(event.model_dump())


def event_from_json(text: str | bytes) -> StreamEvent:
    """Return the event that `event_to_json` wrote.

    Raises:
        ValueError: It is none.
    """
    return event_from_value(json.loads(text))


def event_from_value(value: object) -> StreamEvent:
    """Return the event that JSON data is.

    Raises:
        ValueError: It is none.
    """
    event: StreamEvent = _adapter.validate_python(value)
    return event


def to_json(value: object) -> str:
    """Return data as one line of JSON in ASCII; what JSON has no number for (NaN, infinity) is null."""
    try:
        text = _encode(value)
    except ValueError:
        text = _encode(_finite(value))
    return text.replace(_DELETE, r"\u007f")


_encode: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list():
            return [_finite(each) for each in value]
        case _:
            return value
