"""Who owns a container: a process on a machine, told apart from every other one that ever had the same number."""

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from aeolus_sandbox.errors import ConfigurationError

Liveness = Literal["alive", "gone", "unknown"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of containers, as it stands in their labels."""

    host: str
    """The machine and its boot, and the process namespace: process ids compare only within one."""
    pid: int
    started: str
    """When the process started, in clock ticks since boot: a reused process id has another."""
    nonce: str
    """Tells the managers of one process apart."""

    @classmethod
    def this_process(cls) -> Self:
        """Return a new owner that stands for this process."""
        pid = os.getpid()
        return cls(_this_host(), pid, _start_ticks(pid) or "", uuid.uuid4().hex)

    @classmethod
    def parse(cls, label: str) -> Self:
        """Return the owner that a label names.

        Raises:
            ConfigurationError: The label is not one of ours.
        """
        parts = label.split(":")
        if len(parts) != 4 or not parts[1].isdigit():
            msg = f"{label!r} is not an owner's label"
            raise ConfigurationError(msg)
        return cls(parts[0], int(parts[1]), parts[2], parts[3])

    def __str__(self) -> str:
        """Return the label."""
        return f"{self.host}:{self.pid}:{self.started}:{self.nonce}"

    def liveness(self) -> Liveness:
        """Return whether the owner's process runs; `unknown` when it is of another machine or namespace."""
        if self.host != _this_host():
            return "unknown"
        ticks = _start_ticks(self.pid)
        if ticks is not None:
            return "alive" if ticks == self.started else "gone"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return "gone"
        except PermissionError:
            return "alive"
        return "gone" if self.started else "alive"


def _this_host() -> str:
    try:
        boot = _BOOT_ID.read_text("ascii").strip()
        namespace = _PID_NAMESPACE.stat().st_ino  # what the link would name in brackets: namespaces(7)
    except OSError:  # not Linux
        return f"node-{uuid.getnode():x}"
    return f"{boot}-{namespace}"


def _start_ticks(pid: int) -> str | None:
    """Return when a process started, or None where that cannot be read: field 22 of proc_pid_stat(5)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    # A zombie has ended; only its parent does not know yet.
    return None if fields[0] in {"Z", "X"} else fields[19]
