"""What `approvals` and `checkpoints` share: the state file, ages, and how records reach a screen or a program."""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeVar

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aeolus_sandbox.cli.exits import Exit, say
from aeolus_sandbox.cli.present import without_surrogates
from aeolus_sandbox.cli.sink import Sink
from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.sandboxes.owner import Liveness, Owner
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.location import default_state_path
from aeolus_sandbox.streaming.screen import harmless

T = TypeVar("T")

DEFAULT_LIMIT: Final = 100
DEFAULT_AGE: Final = "30d"
_UNIT_SECONDS: Final = {"d": 24 * 3600, "h": 3600, "m": 60, "s": 1}
_OLDEST_S: Final = 100 * 365 * _UNIT_SECONDS["d"]
_WHOLE_CHARACTERS: Final = 36
"""What is not longer than a UUID is never broken."""
_LAST_CHARACTERS: Final = 16
_GAP_CHARACTERS: Final = 2
_LINE_BREAKERS: Final = str.maketrans("\t\n\r", "   ")

StateFile = Annotated[
    Path | None,
    typer.Option(
        "--state-file",
        metavar="FILE",
        dir_okay=False,
        help="The state file; default: $AEOLUS_STATE, else aeolus/state.db in the user's folder for state.",
    ),
]
JsonLines = Annotated[bool, typer.Option("--json", help="Write each one as a JSON object on a line.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write it as a JSON object on a line.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10**6, help="How many at most.")]
OlderThan = Annotated[
    str, typer.Option("--older-than", metavar="AGE", help="An age such as 30d, 12h, 90m or 45s.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")]


def ask(state_file: Path | None, question: Callable[[Database], Coroutine[Any, Any, T]]) -> T | None:
    """Return the answer to a question to the state file; None where there is no file, and none is made."""
    path = state_file or default_state_path()
    return asyncio.run(_answer(path, question)) if path.exists() else None


async def _answer(path: Path, question: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
    async with aclosing(Database(path)) as database:
        return await question(database)


def fail(message: str) -> NoReturn:
    """Say why the command did not do what it was told to, and end it."""
    say(harmless(message))
    raise typer.Exit(Exit.FAILED)


def parse_name(text: str) -> str:
    """Return an id or a key, of which all that was ever given out are printable."""
    if not text.isprintable():
        msg = f"{text!r} is not printable"
        raise typer.BadParameter(msg)
    return text


def parse_age(text: str) -> timedelta:
    """Return the time that an age such as `30d`, `12h`, `90m` or `45s` means."""
    match = re.fullmatch(r"([0-9]{1,10})([dhms])", text.strip().lower())
    seconds = int(match[1]) * _UNIT_SECONDS[match[2]] if match else _OLDEST_S + 1
    if seconds > _OLDEST_S:
        msg = f"{text!r} is not an age: give a whole number with d, h, m or s, such as 30d; at most a century"
        raise typer.BadParameter(msg, param_hint="--older-than")
    return timedelta(seconds=seconds)


def format_age(age: timedelta) -> str:
    """Return an age in its largest whole unit, as `parse_age` reads it; of what is still to come, `0s`."""
    seconds = max(0, int(age.total_seconds()))
    unit, length = next((each for each in _UNIT_SECONDS.items() if seconds >= each[1]), ("s", 1))
    return f"{seconds // length}{unit}"


def age_of(moment: datetime) -> str:
    """Return how long ago a moment was, by the clock of the machine."""
    return format_age(datetime.now(UTC) - moment)


def with_age(moment: datetime) -> str:
    """Return a moment, and how long ago it was."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({age_of(moment)} ago)"


def moment_before(age: str) -> datetime:
    """Return the moment that was an age such as `30d` ago."""
    return datetime.now(UTC) - parse_age(age)


def liveness_of(owner: str) -> Liveness:
    """Return whether the process of an owner's label runs."""
    try:
        return Owner.parse(owner).liveness()
    except ConfigurationError:
        return "unknown"


def is_screen() -> bool:
    """Return whether people read stdout, and not a program."""
    return sys.stdout.isatty()


def one_line(text: str) -> str:
    """Return a text as it may stand in a line of a table."""
    return harmless(text.translate(_LINE_BREAKERS))


def write_lines(rows: Iterable[Sequence[str]]) -> None:
    """Write rows for a program: a line each, tabs between the columns."""
    for row in rows:
        typer.echo("\t".join(map(one_line, row)))


def write_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write rows for people; the first column is what to type, and the last shows as much as there is room for."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    console, table = Console(), Table(*names, box=None, pad_edge=False, padding=(0, _GAP_CHARACTERS, 0, 0))
    room = console.width - sum(widths[:-1]) - _GAP_CHARACTERS * (len(names) - 1)
    first, last = table.columns[0], table.columns[-1]
    first.no_wrap = last.no_wrap = True  # where there is little room, the others give way
    last.width = min(widths[-1], max(room, _LAST_CHARACTERS))
    for name, *others in cells:
        table.add_row(Text(_folded(name)), *map(Text, others))
    console.print(table)


def _folded(name: str) -> str:
    return "\n".join(name[i : i + _WHOLE_CHARACTERS] for i in range(0, len(name), _WHOLE_CHARACTERS))


def write_fields(fields: Mapping[str, str | None]) -> None:
    """Write what is known of one thing, a line for each."""
    for name, value in fields.items():
        if value is not None:
            typer.echo(f"{name:<12}{one_line(value)}")


def write_text(text: str) -> None:
    """Write a text that is not ours, after an empty line: exactly to a program, harmless to a screen."""
    sink = Sink(sys.stdout)
    if sink.is_screen:
        # Boundary: whoever decides must see it all, and what comes after a carriage return overwrites what was before.
        text = harmless(text.replace("\r\n", "\n").replace("\r", "\u240d"))
    typer.echo()
    sink.write_line(text)
    sink.finish()


def write_json(record: Mapping[str, Any]) -> None:
    """Write a record as a JSON object on a line of ASCII."""
    typer.echo(json.dumps(without_surrogates(record), default=datetime.isoformat))


def write_removed(names: Sequence[str], *, dry_run: bool) -> None:
    """Say what was removed, or would be."""
    for name in names:
        typer.echo(f"{'would remove' if dry_run else 'removed'} {one_line(name)}")
    if not names:
        typer.echo("nothing to remove")


def say_more(limit: int) -> None:
    """Say that there is more than was shown."""
    say(f"there are more than these {limit}: --limit shows more")
