"""Runs bare and inside containers: does each kind of work for a moment and says how long one operation took.

Usage: python -c WORK SECONDS. Its first line is "started", its second a JSON object: seconds per operation by kind.
"""

import json
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from itertools import repeat, starmap
from pathlib import Path
from typing import Any

MIB = 2**20
TMPFS_FILE = "/tmp/work"
"""On a tmpfs, bare and in every container."""
TMPFS_BLOCKS = 8
SQUARE = 256
"""Side of the matrices that are multiplied."""
COPY_MIB = 32

Work = tuple[Callable[[int], object], int]
"""Does so many operations; and how many at once, so that looking at the clock costs nothing beside them."""


def measured(seconds: float) -> dict[str, float]:
    """Do all kinds of work, `seconds` each."""
    # A process that has loaded numpy takes longer to fork: whatever the isolation, so that comes first.
    kinds = {"fork and exec": (fork_exec, 1), **calls(), "CPU, pure Python": (pure_python, 1), **files()}
    took = {name: per_operation(*work, seconds) for name, work in kinds.items()}
    Path(TMPFS_FILE).unlink()
    return took | {name: per_operation(*work, seconds) for name, work in numpy_work().items()}


def per_operation(work: Callable[[int], object], count: int, seconds: float) -> float:
    """Return how long one operation takes: the middle one of what is done in `seconds`, some operations at a time.

    The middle, because a slice of time in which something else had the processor says nothing about the isolation.
    """
    work(count)  # what only the first one does is no part of it
    took: list[float] = []
    now = began = time.perf_counter()
    while now - began < seconds:
        work(count)
        took.append(-now + (now := time.perf_counter()))
    return statistics.median(took) / count


def calls() -> dict[str, Work]:
    """Return the system calls; the way from Python to them is in it, and the same everywhere."""

    def getpid(count: int) -> None:
        deque(starmap(os.getpid, repeat((), count)), maxlen=0)

    def stat(count: int) -> None:
        deque(map(os.stat, repeat(sys.executable, count)), maxlen=0)

    def open_close(count: int) -> None:
        for name in repeat(sys.executable, count):
            os.close(os.open(name, os.O_RDONLY))

    return {
        "system call: getpid": (getpid, 1000),
        "system call: stat": (stat, 100),
        "system calls: open, close": (open_close, 100),
    }


def fork_exec(count: int) -> None:
    """Start a program that does nothing, and wait for its end."""
    for _ in range(count):
        if (child := os.fork()) == 0:
            os.execv("/bin/true", ["true"])
        os.waitpid(child, 0)


def pure_python(count: int) -> None:
    """Make and take apart Python's own objects."""
    for _ in range(count):
        table: dict[int, str] = {}
        for number in range(2000):
            table[number % 97] = f"{number:x}" + table.get(number % 89, "")[:8]
        sorted(table.values())


def files() -> dict[str, Work]:
    """Return reading and writing in blocks of a MiB: a file in memory, and one of the image (cached after once)."""
    block = bytearray(os.urandom(MIB))
    memory = os.open(TMPFS_FILE, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    image, image_blocks = (
        os.open(sys.executable, os.O_RDONLY),
        max(1, Path(sys.executable).stat().st_size // MIB),
    )

    def write_read(count: int) -> None:
        for number in range(count):
            place = number % TMPFS_BLOCKS * MIB
            os.pwrite(memory, block, place)
            os.preadv(memory, [block], place)

    def read(count: int) -> None:
        for number in range(count):
            os.preadv(image, [block], number % image_blocks * MIB)

    return {
        "file I/O: tmpfs, write and read a MiB": (write_read, 1),
        "file I/O: image, read a MiB": (read, 1),
    }


def numpy_work() -> dict[str, Work]:
    """Return what numpy does: multiplying matrices, and moving memory."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one processor is all that there is
    import numpy as np

    left = np.random.default_rng(7).random((SQUARE, SQUARE))
    source: Any = np.ones(COPY_MIB * MIB, dtype=np.uint8)
    target: Any = np.zeros_like(source)

    def multiply(count: int) -> None:
        for _ in range(count):
            np.matmul(left, left)

    def copy(count: int) -> None:
        for _ in range(count):
            np.copyto(target, source)

    return {
        f"CPU, numpy: {SQUARE} x {SQUARE} matrices multiplied": (multiply, 1),
        f"memory: {COPY_MIB} MiB copied": (copy, 1),
    }


if __name__ == "__main__":
    print("started", flush=True)
    print(json.dumps(measured(float(sys.argv[1]))), flush=True)
