"""What the kernel says about this container's memory: its limit, and how often it has killed something for it."""

from contextlib import suppress
from pathlib import Path
from typing import Final

_NO_LIMIT: Final = 2**60
"""cgroup v1 says "no limit" by a number beyond any machine's memory."""

# cgroup v2 counts in memory.events (admin-guide/cgroup-v2.rst), v1 in memory.oom_control (cgroup-v1/memory.rst).
_COUNTERS: Final = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))

_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


_MACHINE: Final = Path("/proc/meminfo")


def memory_limit_bytes() -> int | None:
    """Return the limit; None where there is none, or it cannot be read."""
    for path in _LIMITS:
        try:
            text = path.read_text("ascii").strip()
        except OSError:
            continue
        return int(text) if text.isdigit() and int(text) < _NO_LIMIT else None
    return _machine_bytes()


def _machine_bytes() -> int | None:
    """Return what the machine has: without cgroups, as in gVisor, the container's limit is that of its machine."""
    with suppress(OSError, ValueError, IndexError):
        name, kilobytes, *_ = _MACHINE.read_text(
            "ascii"
        ).split()  # its first line is MemTotal, proc_meminfo(5)
        return int(kilobytes) * 1024 if name == "MemTotal:" else None
    return None


def memory_kills() -> int:
    """Return the count; 0 where it cannot be read, as under gVisor."""
    for path in _COUNTERS:
        try:
            lines = path.read_text("ascii").splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.isdigit():
                return int(value)
    return 0
