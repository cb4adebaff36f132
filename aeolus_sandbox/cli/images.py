"""`aeolus images`: the images that sandboxes run."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Self

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from aeolus_sandbox.cli.exits import Exit
from aeolus_sandbox.cli.running import run_orderly
from aeolus_sandbox.engine.image_catalog import shipped_catalog
from aeolus_sandbox.engine.images import BuildProgress, Check, ImageBuilder, ImageState
from aeolus_sandbox.streaming.screen import harmless

_BUNDLE_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_STATE_COLOURS: Final = {"current": "green", "stale": "yellow", "missing": "red"}

app = typer.Typer(help="List, build, verify and remove the images that sandboxes run.", no_args_is_help=True)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Which images; default: all of ours.")
]


@app.command("list")
def list_images() -> None:
    """List the images: current, stale (made from other files than the present ones) or missing."""

    def work(builder: ImageBuilder, _cancel: threading.Event) -> int:
        _show_states(builder.list())
        return Exit.SUCCESS

    _with_builder(work)


@app.command()
def build(
    names: Names = None,
    ca_bundle: Annotated[
        Path | None,
        typer.Option(
            "--ca-bundle",
            metavar="PATH",
            exists=True,
            dir_okay=False,
            help="Certificates for the build alone; default: SSL_CERT_FILE or REQUESTS_CA_BUNDLE, where one is set.",
        ),
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build what is current, too.")] = False,
) -> None:
    """Build images that are missing or stale, and what they are built on."""
    wanted = _known(names)
    bundle = ca_bundle or _bundle_of_environment()

    def work(builder: ImageBuilder, cancel: threading.Event) -> int:
        for name in wanted:
            with BuildDisplay(name) as display:
                state = builder.build(
                    name, ca_bundle=bundle, progress=display.show, rebuild=rebuild, cancel=cancel
                )
            typer.echo(state.reference)
        return Exit.SUCCESS

    _with_builder(work)


@app.command()
def verify(names: Names = None) -> None:
    """Check what images promise: nothing setuid, nothing left of the build, all programs there."""
    wanted = _known(names)

    def work(builder: ImageBuilder, cancel: threading.Event) -> int:
        failed = False
        for name in wanted:
            if cancel.is_set():
                break
            for check in builder.verify(name):
                failed = failed or not check.ok
                _show_check(name, check)
        return Exit.FAILED if failed else Exit.SUCCESS

    _with_builder(work)


@app.command()
def remove(
    names: Names = None,
    stale: Annotated[bool, typer.Option("--stale", help="Only what is out of date.")] = False,
) -> None:
    """Remove images, and what the engine has cached of their builds; nothing that is not ours."""
    catalog = shipped_catalog()
    # What is built on another image goes first.
    wanted = sorted(_known(names), key=lambda name: len(catalog.recipe(name).lineage), reverse=True)

    def work(builder: ImageBuilder, _cancel: threading.Event) -> int:
        removed = [reference for name in wanted for reference in builder.remove(name, stale_only=stale)]
        for reference in removed:
            typer.echo(f"removed {reference}")
        if not removed:
            typer.echo("nothing to remove")
        return Exit.SUCCESS

    _with_builder(work)


class BuildDisplay:
    """Shows what a build says on stderr: on one moving line on a terminal, else a line for each step."""

    def __init__(self, name: str) -> None:
        self._console = Console(stderr=True)
        self._last_step = ""
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task(f"image {name}")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._progress.stop()

    def show(self, progress: BuildProgress) -> None:
        """Show one thing that the build said."""
        # Boundary: a build step's output is as little to be trusted as a container's.
        text = harmless(progress.text.replace("\r", " "))
        room = max(20, self._console.width - 40)
        if self._console.is_terminal:
            self._progress.update(
                self._task, description=f"image {progress.image} {progress.step} {text[:room]}"
            )
        elif progress.step != self._last_step:
            self._last_step = progress.step
            sys.stderr.write(f"image {progress.image} {progress.step} {text[:100]}\n")


def _with_builder(work: Callable[[ImageBuilder, threading.Event], int]) -> None:
    """Run blocking work with an image builder in a thread, so that a signal can stop it, and exit with its code."""
    cancel = threading.Event()

    def in_thread() -> int:
        with ImageBuilder() as builder:
            return work(builder, cancel)

    async def run() -> int:
        try:
            return await asyncio.to_thread(in_thread)
        except asyncio.CancelledError:
            cancel.set()  # the thread ends soon, and is waited for
            raise

    raise typer.Exit(run_orderly(run()))


def _show_states(states: list[ImageState]) -> None:
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


def _show_check(name: str, check: Check) -> None:
    detail = f": {check.detail}" if check.detail else ""
    # Boundary: the image's own checks run inside of it, and their words are the image's.
    line = harmless(f"{name}: {check.name}{detail}".replace("\n", " "))
    style = "green" if check.ok else "red"
    verdict = Text("ok  " if check.ok else "fail", style=style)
    Console().print(verdict, Text(line), soft_wrap=True)


def _known(names: list[str] | None) -> list[str]:
    known = shipped_catalog().names()
    for name in names or ():
        if name not in known:
            msg = f"there is no image {name!r}: there are {', '.join(known)}"
            raise typer.BadParameter(msg)
    return list(dict.fromkeys(names or known))


def _bundle_of_environment() -> Path | None:
    candidates = (Path(os.environ[name]) for name in _BUNDLE_VARIABLES if os.environ.get(name))
    return next((path for path in candidates if path.is_file()), None)
