"""`aeolus version`."""

import typer

from aeolus_sandbox.version import __version__


def version() -> None:
    """Print the version."""
    typer.echo(f"aeolus {__version__}")
