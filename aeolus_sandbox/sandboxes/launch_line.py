"""The park script, and the one line that tells a parked container what to run.

The script is plain POSIX sh, so that any image with `sh` can be parked. It prints one byte when it is ready, and blocks
on reading a line. A question mark is answered with the same byte again; anything else is evaluated. The line is quoted here so that no argument, path, environment value or size
can be anything but what it is: every value stands in single quotes, a newline is spelt as the script's
first parameter, and a zero byte cannot be passed to a program at all (execve(2)).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from aeolus_sandbox.errors import ConfigurationError

READY: Final = b"R"
"""What a parked container prints when it waits for its line."""
ASK: Final = b"?\n"
"""A line that a parked container answers with `READY`, and goes on waiting."""
NO_TERMINAL_CONTROL: Final = b"N"
"""What it prints when the image has no `stty`, so that its terminal cannot be parked."""
STARTED: Final = b"\x06"
"""What a terminal's program is preceded by: from there on the terminal is in its usual mode."""
FILES_END: Final = b"\n"
"""What must follow the files on a terminal: Docker holds a last byte back that may begin its detach keys."""

MAX_ARGUMENT_BYTES: Final = 128 * 1024 - 1
"""The longest argument or variable that the kernel passes to a program: MAX_ARG_STRLEN in execve(2)."""
MAX_LINE_BYTES: Final = 1024 * 1024
"""The longest launch line; the kernel's own limit for all arguments together is about twice that."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SHELLS_OWN: Final = re.compile(
    r"(?:_|OPTIND|UID|EUID|PPID|GROUPS|RANDOM|SRANDOM|SECONDS|LINENO|HISTCMD|DIRSTACK|FUNCNAME|EPOCH(?:SECONDS|REALTIME)"
    r"|SHELLOPTS|BASHOPTS|BASH_[A-Z0-9_]+|COMP_WORDBREAKS)\Z"
)
"""Variables that some shell makes up itself, and does not let be set or exported to any text."""

# Boundary: whatever happens to the host, the container ends at its deadline. The watchdog is a grandchild, so that
# the program does not find a child that it never had; it ignores the signals that are meant for the program.
_WATCHDOG: Final = "( (trap '' HUP INT QUIT TERM; sleep %d && kill -9 -1) </dev/null >/dev/null 2>&1 & )"

# The line is read byte for byte, as in the C locale: where characters are longer, bash 5.2's `read` loses some control
# bytes where its buffer grows.
_WAIT: Final = (
    "printf R; while IFS= LC_ALL=C read -r aeolus_line || exit 1; [ \"$aeolus_line\" = '?' ]; do printf R; done; "
    'eval "$aeolus_line"'
)
# The terminal is raw while it is parked: in its usual mode it cuts a line at 4,095 bytes (termios(3), "canonical
# mode"), echoes it, and takes some bytes for signals.
_PARK_TERMINAL: Final = (
    "aeolus_stty=$(stty -g 2>/dev/null) && stty raw -echo 2>/dev/null || { printf N; exit 1; }; "
    + _WATCHDOG
    + "; "
    + _WAIT
)
_PARK_PIPES: Final = _WATCHDOG + "; " + _WAIT


def park_command(*, tty: bool, deadline_s: float) -> tuple[str, ...]:
    """Return the command of a container that parks, and kills itself after `deadline_s` seconds."""
    script = _PARK_TERMINAL if tty else _PARK_PIPES
    # The newline is a parameter and not a variable, because a variable of the caller's could have the same name.
    return ("sh", "-c", script % max(1, round(deadline_s)), "sh", "\n")


def launch_line(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    files: Sequence[tuple[str, int]] = (),
    size: tuple[int, int] | None = None,
) -> bytes:
    """Return the line that makes a parked container run a program.

    Args:
        argv: The program and its arguments.
        env: Variables to add to the image's.
        cwd: The working directory.
        files: Path and size in bytes of each file to write first; their content must follow the line at once.
        size: Columns and rows of the terminal; None where there is none.

    Raises:
        ConfigurationError: A value cannot be passed to a program.
    """
    if not argv:
        msg = "there is no program to run: argv is empty"
        raise ConfigurationError(msg)
    steps = [_receive_file(path, size_bytes) for path, size_bytes in files]
    if size is not None:
        cols, rows = check_size(*size)
        if files:
            steps.append("read -r aeolus_line")  # FILES_END
        steps.append(f'stty "$aeolus_stty" cols {cols:d} rows {rows:d}')
        steps.append(f"printf '\\{STARTED[0]:03o}'")
    # A relative path gets a dot in front: `cd -` means another folder, and CDPATH would look elsewhere.
    steps.append(f"cd -- {_quoted(cwd if cwd.startswith('/') else f'./{cwd}', 'cwd')} || exit 126")
    shells_own = {name: value for name, value in env.items() if _SHELLS_OWN.match(name)}
    steps += [
        f"export {_variable_name(name)}={_quoted(value, name)}"
        for name, value in env.items()
        if name not in shells_own
    ]
    if shells_own or argv[0].startswith("-"):  # dash's exec knows no `--`
        argv = _behind_env(argv, shells_own)
    steps.append("exec " + " ".join(_quoted(argument, "argument") for argument in argv))
    line = "; ".join(steps).encode("utf-8", "surrogateescape") + b"\n"
    if len(line) > MAX_LINE_BYTES:
        msg = f"the command and its environment are {len(line)} bytes; at most {MAX_LINE_BYTES} can be passed: use files"
        raise ConfigurationError(msg)
    return line


def check_size(cols: int, rows: int) -> tuple[int, int]:
    """Return a terminal's size if it is one.

    Raises:
        ConfigurationError: It is not between 1 and 65,535 each way (`struct winsize` holds 16 bits).
    """
    if not (0 < cols < 65536 and 0 < rows < 65536):
        msg = f"a terminal of {cols!r} columns and {rows!r} rows does not exist"
        raise ConfigurationError(msg)
    return cols, rows


def _receive_file(path: str, size_bytes: int) -> str:
    folder, slash, _ = path.rpartition("/")
    make_folder = f"mkdir -p -- {_quoted(folder, 'path')} && " if slash and folder else ""
    # dd and not `head -c`: busybox's head reads further than it writes, and what follows is the next file's.
    receive = f"dd bs=65536 count={size_bytes:d} iflag=count_bytes,fullblock status=none"
    return f"{make_folder}{receive} > {_quoted(path, 'path')} || exit 125"


def _behind_env(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the arguments of env(1) that runs a program with variables that the shell itself cannot export."""
    if "=" in argv[0]:
        msg = f"the program {argv[0]!r} cannot be run with {sorted(env)}: its name looks like a variable to env(1)"
        raise ConfigurationError(msg)
    return ["env", "--", *(f"{name}={value}" for name, value in env.items()), *argv]


def _variable_name(name: str) -> str:
    # Boundary: a name stands outside of quotes, so only what the shell itself calls a name may pass.
    if not _NAME.match(name):
        msg = f"{name!r} cannot be the name of an environment variable: use letters, digits and underscores"
        raise ConfigurationError(msg)
    return name


def _quoted(value: str, what: str) -> str:
    # Boundary: inside single quotes nothing has a meaning to the shell but the single quote itself.
    if "\0" in value:
        msg = f"{what} {value[:40]!r} has a zero byte, which cannot be passed to a program"
        raise ConfigurationError(msg)
    try:
        size = len(value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        msg = f"{what} {value[:40]!r} is not text that can be passed to a program: {error}"
        raise ConfigurationError(msg) from error
    if size > MAX_ARGUMENT_BYTES:
        msg = f"{what} {value[:40]!r}... has {size} bytes; at most {MAX_ARGUMENT_BYTES} can be passed: use a file"
        raise ConfigurationError(msg)
    return "'" + value.replace("'", "'\\''").replace("\n", "'\"$1\"'") + "'"
