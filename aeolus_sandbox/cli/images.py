"""`aeolus images`: the images that sandboxes run."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from aeolus_sandbox.cli.exits import Exit
from aeolus_sandbox.cli.image_views import parse_age, show_check, show_derived, show_states
from aeolus_sandbox.cli.running import run_orderly
from aeolus_sandbox.engine.image_catalog import shipped_catalog
from aeolus_sandbox.engine.image_context import certificates_of_environment
from aeolus_sandbox.engine.images import BuildProgress, Check
from aeolus_sandbox.engine.package_images import PackageImageBuilder
from aeolus_sandbox.streaming.screen import harmless

app = typer.Typer(help="List, build, verify and remove the images that sandboxes run.", no_args_is_help=True)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Which images; default: all of ours.")
]


@app.command("list")
def list_images() -> None:
    """List the images: current, stale (made from other files than the present ones) or missing.

    Below them, those with packages on top of one, which calls had made.
    """

    def work(builder: PackageImageBuilder, _cancel: threading.Event) -> int:
        show_states(builder.list())
        show_derived(builder.derived())
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
    bundle = ca_bundle or certificates_of_environment()

    def work(builder: PackageImageBuilder, cancel: threading.Event) -> int:
        for name in wanted:
            with BuildDisplay(name) as display:
                state = builder.build(
                    name, ca_bundle=bundle, progress=display.show, rebuild=rebuild, cancel=cancel
                )
            typer.echo(state.reference)
        return Exit.SUCCESS

    _with_builder(work)


@app.command()
def verify(
    names: Names = None,
    derived_too: Annotated[
        bool, typer.Option("--packages", help="Check what has packages on top of them, too.")
    ] = False,
) -> None:
    """Check what images promise: nothing setuid, nothing left of the build, all programs there."""
    wanted = _known(names)

    def work(builder: PackageImageBuilder, cancel: threading.Event) -> int:
        failed = False
        for name in wanted:
            if cancel.is_set():
                break
            for what, check in _checks(builder, name, derived_too=derived_too):
                failed = failed or not check.ok
                show_check(what, check)
        return Exit.FAILED if failed else Exit.SUCCESS

    _with_builder(work)


@app.command()
def remove(
    names: Names = None,
    stale: Annotated[bool, typer.Option("--stale", help="Only what is out of date.")] = False,
) -> None:
    """Remove images, and what the engine has cached of their builds; nothing that is not ours.

    What has packages on top of them goes too.
    """
    catalog = shipped_catalog()
    # What is built on another image goes first.
    wanted = sorted(_known(names), key=lambda name: len(catalog.recipe(name).lineage), reverse=True)

    def work(builder: PackageImageBuilder, _cancel: threading.Event) -> int:
        removed = [reference for name in wanted for reference in builder.remove(name, stale_only=stale)]
        for reference in removed:
            typer.echo(f"removed {reference}")
        if not removed:
            typer.echo("nothing to remove")
        return Exit.SUCCESS

    _with_builder(work)


@app.command()
def prune(
    unused_for: Annotated[
        timedelta,
        typer.Option(
            "--unused-for",
            metavar="TIME",
            parser=parse_age,
            help="Only those that no call has asked for in this time: 30d, 12h, 90m or 0.",
        ),
    ] = timedelta(days=30),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")
    ] = False,
) -> None:
    """Remove images with packages that nobody has used for a while; never one that ships with us."""

    def work(builder: PackageImageBuilder, _cancel: threading.Event) -> int:
        unused = builder.unused(for_s=unused_for.total_seconds())
        for image in unused:
            gone = not dry_run and builder.discard(image)
            said = "would remove" if dry_run else "removed" if gone else "kept, because a container uses it:"
            typer.echo(f"{said} {image.reference} ({image.image} with {' '.join(image.packages)})")
        if not unused:
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


def _with_builder(work: Callable[[PackageImageBuilder, threading.Event], int]) -> None:
    """Run blocking work with an image builder in a thread, so that a signal can stop it, and exit with its code."""
    cancel = threading.Event()

    def in_thread() -> int:
        with PackageImageBuilder() as builder:
            return work(builder, cancel)

    async def run() -> int:
        try:
            return await asyncio.to_thread(in_thread)
        except asyncio.CancelledError:
            cancel.set()  # the thread ends soon, and is waited for
            raise

    raise typer.Exit(run_orderly(run()))


def _checks(builder: PackageImageBuilder, name: str, *, derived_too: bool) -> Iterator[tuple[str, Check]]:
    yield from ((name, check) for check in builder.verify(name))
    for derived in builder.derived(name) if derived_too else ():
        yield from ((derived.reference, check) for check in builder.verify_packages(derived))


def _known(names: list[str] | None) -> list[str]:
    known = shipped_catalog().names()
    for name in names or ():
        if name not in known:
            msg = f"there is no image {name!r}: there are {', '.join(known)}"
            raise typer.BadParameter(msg)
    return list(dict.fromkeys(names or known))
