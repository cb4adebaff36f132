"""The command line: the only place that knows typer and rich."""

from aeolus_sandbox.cli.app import app, main

__all__ = ["app", "main"]
