"""How values lie in the columns of the state file."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the time by the clock of the machine."""
    return datetime.now(UTC)


def moment_to_column(moment: datetime) -> str:
    """Return a moment as text of a fixed width, so that texts compare as the moments do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def moment_from_column(column: str) -> datetime:
    """Return the moment that `moment_to_column` wrote."""
    return datetime.fromisoformat(column)


def text_to_column(text: str) -> bytes:
    """Return any text as bytes: what a program prints can hold lone surrogates, which SQLite's own text cannot."""
    return text.encode("utf-8", "surrogatepass")


def text_from_column(column: bytes) -> str:
    """Return the text that `text_to_column` wrote."""
    return column.decode("utf-8", "surrogatepass")
