"""`aeolus reap`: remove what processes that are gone have left behind."""

import typer

from aeolus_sandbox.cli.exits import Exit, say
from aeolus_sandbox.cli.running import run_orderly
from aeolus_sandbox.manager import SessionManager


def reap() -> None:
    """Remove the containers whose owner is gone, found by their labels; nothing else is touched."""
    raise typer.Exit(run_orderly(_reap()))


async def _reap() -> int:
    async with SessionManager() as manager:
        reaped = await manager.reap()
    for container in reaped.removed:
        typer.echo(f"removed {container}")
    if not reaped.removed and not reaped.failed:
        typer.echo("nothing to remove")
    if reaped.living:
        typer.echo(f"{reaped.living} left alone: their owner is alive")
    for container in reaped.failed:
        say(
            f"could not remove the container {container}: run `aeolus reap` again, or remove it with the engine's client"
        )
    return Exit.OUR_FAILURE if reaped.failed else Exit.SUCCESS
