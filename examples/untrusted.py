"""The untrusted script of the demo: works a little, then tries what it must not be able to do, then draws a plot.

It runs inside the sandbox. For each attempt it prints `[failed] NAME: ERRNO: words` or `[SUCCEEDED] NAME: words`; the
demo on the outside reads these lines and decides nothing from its own hopes. Every attempt stops by itself at a
bound, so that it would do no harm where nothing stopped it.
"""
# ruff: noqa: T201, BLE001 - it prints, and misbehaves on purpose

import ctypes
import errno
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

MANY_PROCESSES = 2000
MUCH_DISK_BYTES = 4 * 1024**3
LIBC = ctypes.CDLL(None, use_errno=True)


def attempt(name: str, forbidden: Callable[[], str]) -> None:
    """Try one thing and say how it went."""
    try:
        words = forbidden()
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, type(error).__name__)
        print(f"[failed] {name}: {code}: {error}", flush=True)
    except Exception as error:
        print(f"[failed] {name}: {type(error).__name__}: {error}", flush=True)
    else:
        print(f"[SUCCEEDED] {name}: {words}", flush=True)


def use_network() -> str:
    """Reach a host outside."""
    with socket.create_connection(("1.1.1.1", 53), timeout=3) as connection:
        return f"connected to {connection.getpeername()}"


def fork_bomb() -> str:
    """Fork in every process that there is, until the kernel refuses or there are many."""
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        os.setpgid(0, 0)
        while True:
            try:
                if os.fork():
                    os.write(writing, b"+")
            except OSError as error:
                os.write(writing, bytes([error.errno or 0]))
                time.sleep(60)
    started, refused = 0, b""
    while started < MANY_PROCESSES and not refused:
        news = os.read(reading, 4096)
        started += news.count(b"+")
        refused = news.replace(b"+", b"")
    os.killpg(first, signal.SIGKILL)
    os.waitpid(first, 0)
    for end in (reading, writing):
        os.close(end)
    if refused:
        raise OSError(refused[0], f"{os.strerror(refused[0])} after {started} processes")
    return f"{started} processes run"


def write_outside() -> str:
    """Leave something outside of the workspace."""
    Path("/usr/bin/evil").write_text("#!/bin/sh\n", encoding="utf-8")
    return "there is a new program in /usr/bin"


def fill_disk() -> str:
    """Write until the disk is full, or much has been written."""
    block, written, number = bytes(1024 * 1024), 0, 0
    try:
        while written < MUCH_DISK_BYTES:
            number += 1
            with Path(f"big-{number}").open("wb", buffering=0) as file:
                for _ in range(64):
                    written += file.write(block)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} after {written // 1024**2} MiB") from error
    finally:
        for path in Path().glob("big-*"):
            path.unlink()
    return f"{written // 1024**2} MiB written"


def read_host_file() -> str:
    """Read a file that exists on the host, whose path was given away."""
    secret = Path(Path("secret-path.txt").read_text(encoding="utf-8").strip())
    return f"read {secret.read_text(encoding='utf-8')!r}"


def use_engine() -> str:
    """Talk to the engine, which would be the way to own the host."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("/var/run/docker.sock")
    return "the engine answers"


def trace_process() -> str:
    """Use ptrace(2)."""
    return call("ptrace", 0, 0, 0, 0)


def mount_filesystem() -> str:
    """Use mount(2)."""
    return call("mount", b"none", b"/tmp", b"tmpfs", 0, 0)


def make_user_namespace() -> str:
    """Use unshare(2) with CLONE_NEWUSER, which needs no privilege of its own."""
    return call("unshare", 0x10000000)


def call(name: str, *arguments: object) -> str:
    """Make one system call."""
    if getattr(LIBC, name)(*arguments) == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return f"{name} worked"


def draw() -> None:
    """Draw a plot, which is allowed."""
    import matplotlib.pyplot as plt
    import numpy as np

    x = np.linspace(0, 4 * np.pi, 400)
    plt.figure(figsize=(6, 3))
    plt.plot(x, np.sin(x) * np.exp(-x / 8))
    plt.title("drawn inside the sandbox")
    plt.show()


print("working", flush=True)
for step in range(1, 4):
    time.sleep(0.4)
    print(f"step {step} of 3: {sum(range(step * 100_000)):,}", flush=True)
attempt("network", use_network)
attempt("fork bomb", fork_bomb)
attempt("write outside", write_outside)
attempt("fill the disk", fill_disk)
attempt("read a host file", read_host_file)
attempt("talk to the engine", use_engine)
attempt("ptrace", trace_process)
attempt("mount", mount_filesystem)
attempt("user namespace", make_user_namespace)
print("drawing a plot", flush=True)
draw()
