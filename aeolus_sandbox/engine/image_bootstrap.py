"""Makes a distribution's root file system on this machine, for where no registry answers."""

import os
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aeolus_sandbox.engine.interruption import interruptible
from aeolus_sandbox.errors import ImageBuildFailed

_LIMIT_S: Final = 1200.0
_LINES_KEPT: Final = 20
_GRACE_S: Final = 10.0


def bootstrap(
    script: Path, target: Path, *, cancel: threading.Event | None, say: Callable[[str], None]
) -> None:
    """Run the image's bootstrap script, which writes the tar file `target`.

    Raises:
        ImageBuildFailed: A tool is missing, the script failed, was cancelled or took too long.
    """
    if shutil.which("mmdebstrap") is None:
        msg = (
            "no registry answers and there is no 'mmdebstrap' to make the base image with: "
            "install it (apt-get install mmdebstrap), or load the image that the Dockerfile starts from"
        )
        raise ImageBuildFailed(msg)
    tail: deque[str] = deque(maxlen=_LINES_KEPT)
    # A group of its own: it starts apt and dpkg, which a cancelled build must not leave behind.
    process = subprocess.Popen(  # noqa: S603  (a script that ships with the package)
        ["sh", str(script), str(target)],  # noqa: S607
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        with interruptible(lambda: _stop(process), cancel=cancel, limit_s=_LIMIT_S) as interruption:
            for line in process.stdout or ():
                tail.append(line.rstrip())
                say(tail[-1])
            code = process.wait(timeout=_GRACE_S)
    finally:
        _stop(process)
    if code or interruption:
        why = "was cancelled" if interruption.cancelled else f"failed with exit code {code}"
        msg = "\n".join([f"the bootstrap of the base image {why}; its last lines:", *tail])
        raise ImageBuildFailed(msg)


def _stop(process: subprocess.Popen[str]) -> None:
    """End the whole group; mmdebstrap unmounts and removes what it has made when it is asked to end."""
    for ending in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, ending)
        try:
            process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
