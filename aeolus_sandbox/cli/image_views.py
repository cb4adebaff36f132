"""How images are shown, and how an age is read."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aeolus_sandbox.engine.images import Check, ImageState
from aeolus_sandbox.engine.package_images import PackageImage
from aeolus_sandbox.streaming.screen import harmless

_STATE_COLOURS: Final = {"current": "green", "stale": "yellow", "missing": "red"}
_AGE: Final = re.compile(r"(\d{1,6})([smhd])|0")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_age(text: str) -> timedelta:
    """Read a time such as `30d`, `12h`, `90m`, `45s` or `0`.

    Raises:
        BadParameter: It is none.
    """
    match = _AGE.fullmatch(text)
    if match is None:
        msg = f"{text!r} is no time: say 30d, 12h, 90m, 45s or 0"
        raise typer.BadParameter(msg)
    return timedelta(**{_UNITS[match[2]]: int(match[1])}) if match[1] else timedelta()


def show_derived(images: list[PackageImage]) -> None:
    """Show images with packages: a table on a terminal, else tab-separated lines."""
    console = Console()
    if not console.is_terminal:
        for image in images:
            state = "current" if image.is_current else "stale"
            packages = " ".join(image.packages)
            typer.echo(
                "\t".join(
                    (
                        image.image,
                        state,
                        image.reference,
                        str(image.size_bytes),
                        packages,
                        f"{image.last_used:%Y-%m-%dT%H:%M:%SZ}",
                    )
                )
            )
        return
    if not images:
        return
    table = Table("image", "packages", "state", "reference", "size", "created", "last used")
    for image in images:
        state = "current" if image.is_current else "stale"
        table.add_row(
            image.image,
            Text(harmless(" ".join(image.packages))),
            Text(state, style=_STATE_COLOURS[state]),
            image.reference,
            f"{image.size_bytes / 1e6:.0f} MB",
            f"{image.created:%Y-%m-%d %H:%M} UTC",
            _ago(image.last_used),
        )
    console.print(table)


def _ago(moment: datetime) -> str:
    age = datetime.now(UTC) - moment
    hours = int(age.total_seconds() // 3600)
    return f"{age.days} days ago" if age.days else f"{hours} h ago" if hours else "within the hour"


def show_states(states: list[ImageState]) -> None:
    """Show the shipped images: a table on a terminal, else tab-separated lines."""
    console = Console()
    if not console.is_terminal:
        for state in states:
            typer.echo("\t".join((state.name, state.state, state.reference, str(state.size_bytes))))
        return
    table = Table("image", "state", "reference", "size", "created")
    for state in states:
        table.add_row(
            state.name,
            Text(state.state, style=_STATE_COLOURS[state.state]),
            state.reference,
            f"{state.size_bytes / 1e6:.0f} MB" if state.size_bytes else "",
            f"{state.created:%Y-%m-%d %H:%M} UTC" if state.created else "",
        )
    console.print(table)
    if any(state.state != "current" for state in states):
        console.print(
            "`aeolus images build` makes what is missing or stale; `remove --stale` removes the old"
        )


def show_check(name: str, check: Check) -> None:
    """Show one thing that was promised of an image, and whether it holds."""
    detail = f": {check.detail}" if check.detail else ""
    # Boundary: the image's own checks run inside of it, and their words are the image's.
    line = harmless(f"{name}: {check.name}{detail}".replace("\n", " "))
    style = "green" if check.ok else "red"
    verdict = Text("ok  " if check.ok else "fail", style=style)
    Console().print(verdict, Text(line), soft_wrap=True)
