"""The command line as a whole: its commands, and what becomes of errors."""

import logging
import os
from typing import Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from aeolus_sandbox.cli.agent import agent
from aeolus_sandbox.cli.approvals import app as approvals_app
from aeolus_sandbox.cli.checkpoints import app as checkpoints_app
from aeolus_sandbox.cli.doctor import doctor
from aeolus_sandbox.cli.exits import DEBUG_VARIABLE, EPILOG, Exit, report, report_fault
from aeolus_sandbox.cli.images import app as images_app
from aeolus_sandbox.cli.reap import reap
from aeolus_sandbox.cli.run import run
from aeolus_sandbox.cli.shell import shell
from aeolus_sandbox.cli.sink import stop_writing
from aeolus_sandbox.cli.tail import tail
from aeolus_sandbox.cli.traces import app as traces_app
from aeolus_sandbox.cli.version import version
from aeolus_sandbox.errors import AeolusError


class _Reporting(TyperGroup):
    """Turns errors into one line and an exit code, for every command."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise
        except KeyboardInterrupt as error:
            raise typer.Exit(Exit.INTERRUPTED) from error
        except BrokenPipeError as error:
            stop_writing()
            raise typer.Exit(Exit.BROKEN_PIPE) from error
        except (AeolusError, ValidationError, OSError) as error:
            report(error)
            raise typer.Exit(Exit.OUR_FAILURE) from error
        except Exception as error:
            (report if _is_of_the_library(error) else report_fault)(error)
            raise typer.Exit(Exit.OUR_FAILURE) from error


app = typer.Typer(
    name="aeolus",
    cls=_Reporting,
    help="Run untrusted code in ephemeral containers, and stream what it does.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
)
app.command()(run)
app.command()(shell)
app.command()(tail)
app.command()(agent)
app.add_typer(traces_app, name="traces")
app.add_typer(images_app, name="images")
app.add_typer(approvals_app, name="approvals")
app.add_typer(checkpoints_app, name="checkpoints")
app.command()(doctor)
app.command()(reap)
app.command()(version)


def main() -> None:
    """Run the command line."""
    debug = bool(os.environ.get(DEBUG_VARIABLE))
    # What the library logs as a warning is either in the error that follows, or tried again later.
    logging.basicConfig(format="aeolus: %(message)s", level=logging.WARNING if debug else logging.ERROR)
    app(prog_name="aeolus")


def _is_of_the_library(error: Exception) -> bool:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return isinstance(error, AeolusError)
