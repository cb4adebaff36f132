"""Bare: a program of an image run on this machine without any container, so that only the isolation differs.

The image's files are unpacked into a folder, which becomes the program's root: the same interpreter and libraries
as in the containers. A root folder and a list of mounts of one's own cost nothing once a program runs.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import docker

from benchmarks.child import output_of
from benchmarks.rounds import Unavailable

UNPACK_WITHIN_S: Final = 60
_TRY_WITHIN_S: Final = 20
_PROGRAMS: Final = ("taskset", "unshare", "chroot", "mount", "tar")
_ENTER: Final = (
    'mount -t tmpfs tmpfs "$0/tmp" && mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && '
    'root=$0 && exec chroot "$root" "$@"'
)


@asynccontextmanager
async def bare_host(image: str, *, processor: int) -> AsyncIterator[tuple[str, ...] | Unavailable]:
    """Give what to put before a program's words to run it bare, on one processor; or why that cannot be done here.

    Args:
        image: Reference of the image whose files are used.
        processor: Number of the processor.
    """
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        yield Unavailable(f"this machine has no {', '.join(missing)}")
        return
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="aeolus-bench-")
    try:
        yield await _prepared(image, folder, processor)
    finally:
        # The mounts were the programs' own: nothing of this machine is below the folder.
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _prepared(image: str, folder: str, processor: int) -> tuple[str, ...] | Unavailable:
    rootless = () if os.geteuid() == 0 else ("--map-root-user",)
    words = (
        *("taskset", "--cpu-list", str(processor)),
        *("unshare", *rootless, "--mount", "sh", "-c", _ENTER, folder),
    )
    try:
        await asyncio.to_thread(unpacked, image, folder)
        async with asyncio.timeout(_TRY_WITHIN_S):
            await output_of(*words, "true")
    except (RuntimeError, OSError, TimeoutError, subprocess.SubprocessError) as error:
        return Unavailable(f"the image's programs do not run on this machine itself ({error!r})")
    return words


def unpacked(image: str, folder: str) -> None:
    """Unpack the files of an image into a folder; blocks.

    Raises:
        subprocess.SubprocessError: They cannot be unpacked.
    """
    client: Any = docker.from_env()
    with contextlib.closing(client):
        container = client.api.create_container(image, ["true"])
        try:
            # Nobody's ownership is kept, and no devices are made: root is not needed.
            argv = ["tar", "-x", "--no-same-owner", "--exclude=dev/*", "-C", folder]
            with subprocess.Popen(argv, stdin=subprocess.PIPE) as tar:
                assert tar.stdin is not None
                for block in client.api.export(container):
                    tar.stdin.write(block)
                tar.stdin.close()
                if tar.wait(UNPACK_WITHIN_S) != 0:
                    raise subprocess.SubprocessError("tar failed")
        finally:
            client.api.remove_container(container, force=True, v=True)
    Path(folder).chmod(0o755)
