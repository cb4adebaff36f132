"""The processes behind a `LocalEngine`'s containers: how they are started, found again, and killed."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARK: Final = "AEOLUS_LOCAL_CONTAINER"
"""Variable in the environment of every process of a container, by which those are found that left its session."""
SIGNAL_BASE: Final = 128
"""What a shell, and Docker, add to the number of the signal that ended a program."""
_SCAN_LIMIT_S: Final = 5.0
_EMPTY_SCANS: Final = 2
"""A process can fork and end while `/proc` is read, so that neither it nor its child is seen; the next time the child is."""
_ENDED_STATES: Final = frozenset("ZX")
_SHELL: Final = "/bin/sh"
# Opening a terminal makes it the controlling one of a session that has none (tty_ioctl(4), TIOCSCTTY).
_ON_TERMINAL: Final = 'exec <"$0" >"$0" 2>&1; exec "$@"'
_INITS_COMPLAINT: Final = 'echo "[FATAL tini ($$)] exec $0 failed: No such file or directory" >&2; exit 127'
# Boundary: outside of a container the park script's `kill -9 -1` would reach every process of the user. It ends the
# process group here. A path in the workspace that the launch line names leads to the temporary folder.
_PRELUDE: Final = """\
kill() { for target; do :; done; if [ "$target" = -1 ]; then command kill -9 0; else command kill "$@"; fi; }
cd() { case "$2" in {0}|{0}/*) command cd -- {1}"${2#{0}}";; *) command cd "$@";; esac; }
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a container's processes live."""

    folder: Path
    """The temporary folder that holds the workspace and `/tmp`."""
    working_dir: str
    """The path that the specification says, such as `/workspace`."""

    @property
    def workspace(self) -> Path:
        """What stands for the working directory."""
        return self.folder / "workspace"

    def make(self) -> None:
        """Make the folders."""
        self.workspace.mkdir(parents=True)
        (self.folder / "tmp").mkdir()

    def environment(self, env: Mapping[str, str], mark: str) -> dict[str, str]:
        """Return the variables of a container, with its folders in place of those in a real one."""
        inside = {name: self._moved(value) for name, value in env.items()}
        path = os.environ.get("PATH", os.defpath)
        return {"PATH": path, **inside, "TMPDIR": str(self.folder / "tmp"), MARK: mark}

    def _moved(self, value: str) -> str:
        if value == self.working_dir or value.startswith(f"{self.working_dir}/"):
            return str(self.workspace) + value.removeprefix(self.working_dir)
        return value


def start_process(
    argv: Sequence[str], place: Place, env: Mapping[str, str], *, terminal: str | None, pipes: Sequence[int]
) -> "subprocess.Popen[bytes]":
    """Start a program in a session of its own, on a terminal or on (stdin, stdout, stderr); blocks.

    A missing program starts all the same and ends like one under Docker's init: with a complaint and code 127.
    """
    found = (
        shutil.which(argv[0], path=env["PATH"])
        if "/" not in argv[0]
        else (place.workspace / argv[0]).exists()
    )
    command = _with_prelude(argv, place) if found else [_SHELL, "-c", _INITS_COMPLAINT, argv[0]]
    if terminal is not None:
        command = [_SHELL, "-c", _ON_TERMINAL, terminal, *command]
    stdin, stdout, stderr = pipes or (subprocess.DEVNULL,) * 3
    return subprocess.Popen(  # noqa: S603 - running what the caller says is what an engine is for
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=place.workspace,
        env=env,
        start_new_session=True,
    )


def kill_all(session: int, mark: str) -> None:
    """Kill every process of a session, and every one that bears the mark; blocks until none is left.

    Raises:
        TimeoutError: Some survive.
    """
    deadline = time.monotonic() + _SCAN_LIMIT_S
    empty_scans = 0
    while empty_scans < _EMPTY_SCANS:
        processes = _living(session, mark)
        empty_scans = 0 if processes else empty_scans + 1
        if time.monotonic() > deadline:
            msg = f"the processes {processes} do not end"
            raise TimeoutError(msg)
        for process in processes:
            send_signal(process, signal.SIGKILL)
        if processes:
            time.sleep(0.001)  # a thread of its own: it may sleep


def send_signal(process: int, number: int) -> None:
    """Send a signal to a process, or to a group where negative; without effect when there is none."""
    with suppress(ProcessLookupError):
        os.kill(process, number)


def living_processes(mark: str) -> list[int]:
    """Return the processes whose mark begins like this; blocks."""
    return _living(-1, mark)


def _living(session: int, mark: str) -> "list[int]":
    folders = (folder for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return [int(folder.name) for folder in folders if _belongs(folder, session, mark)]


def _belongs(folder: Path, session: int, mark: str) -> bool:
    try:
        # proc_pid_stat(5): after the name in brackets come state, parent, process group and session.
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        if fields[0].decode() in _ENDED_STATES:
            return False
        variables = (folder / "environ").read_bytes().split(b"\0")
        return int(fields[3]) == session or any(
            each.startswith(f"{MARK}={mark}".encode()) for each in variables
        )
    except OSError:  # it has ended, or it is another user's
        return False


def _with_prelude(argv: Sequence[str], place: Place) -> list[str]:
    if argv[0] not in {"sh", "dash", "bash"} or argv[1:2] != ("-c",):
        return list(argv)
    prelude = _PRELUDE.replace("{0}", place.working_dir).replace("{1}", _quoted(str(place.workspace)))
    return [*argv[:2], prelude + argv[2], *argv[3:]]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
