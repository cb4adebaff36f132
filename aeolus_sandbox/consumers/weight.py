"""How much memory an event takes, roughly: what bounds are made of."""

from aeolus_sandbox.events import StreamEvent


def weight(event: StreamEvent) -> int:
    """Return the number of characters in an event's texts, and some for each of its values."""
    return _weight(event.__dict__)


def _weight(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return 16 + sum(map(_weight, value.values()))
    if isinstance(value, list):
        return 16 + sum(map(_weight, value))
    return 16
