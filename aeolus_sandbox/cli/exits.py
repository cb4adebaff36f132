"""The exit codes of the command line, and how its own failures are said: one line, no traceback."""

import os
import sys
import traceback
from enum import IntEnum
from typing import Final

from pydantic import ValidationError

from aeolus_sandbox.errors import ImageBuildFailed
from aeolus_sandbox.exit_status import ExitStatus
from aeolus_sandbox.streaming.screen import harmless

DEBUG_VARIABLE: Final = "AEOLUS_DEBUG"

EPILOG: Final = """\
Exit codes:

- 0: success
- 1: the code failed (run); a file could not be read (tail); something is wrong (doctor, images verify); not found, or
  decided before (approvals, checkpoints, traces)
- 2: wrong usage
- 124: timed out
- 125: our own failure: engine, image or configuration, said in one line on stderr
- 130: interrupted by Ctrl-C; 128+n: by another signal n
- 137: out of memory, too much output, or killed
- 141: nobody reads the output any more

`shell` ends with the exit code of its program, 128+n after signal n; 124 and 137 as above.

AEOLUS_DEBUG=1 shows tracebacks. NO_COLOR=1 turns colours off. DOCKER_HOST says where the engine is.
"""


class Exit(IntEnum):
    """What our exit codes mean."""

    SUCCESS = 0
    FAILED = 1
    USAGE = 2
    TIMED_OUT = 124
    OUR_FAILURE = 125
    INTERRUPTED = 130
    KILLED = 137
    BROKEN_PIPE = 141


def code_for_run(status: ExitStatus, *, success: bool) -> Exit:
    """Return the exit code of `run`."""
    match status.reason:
        case "exited":
            return Exit.SUCCESS if success else Exit.FAILED
        case "timed_out":
            return Exit.TIMED_OUT
        case "out_of_memory" | "killed" | "output_limit":
            return Exit.KILLED
        case "cancelled":
            return Exit.INTERRUPTED
        case "lost":
            return Exit.OUR_FAILURE


def code_for_program(status: ExitStatus) -> int:
    """Return the exit code of `shell`: the program's own, where it ended by itself."""
    if status.reason in {"exited", "killed"} and status.code is not None:
        return status.code
    return code_for_run(status, success=status.ok)


def say(message: str) -> None:
    """Tell the operator something, on stderr; a terminal that is gone is no reason to fail."""
    try:
        sys.stderr.write(f"aeolus: {message}\n")
        sys.stderr.flush()
    except OSError:
        pass


def report(error: BaseException) -> None:
    """Say what went wrong."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    # Boundary: engine and image messages can quote what a container or a build step said.
    say(harmless(_in_words(error)))


def _in_words(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # The last lines of a build that failed are worth their place; all else is one line.
    return ("\n" if isinstance(error, ImageBuildFailed) else " | ").join(lines)


def report_fault(error: Exception) -> None:
    """Say that we have a fault: anything that is not one of the library's own errors."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    words = harmless(f"{type(error).__name__}: {error}")
    say(f"this is a fault of ours: {words} ({DEBUG_VARIABLE}=1 shows where)")
