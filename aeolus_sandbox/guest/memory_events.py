"""How often the kernel has killed something in this container for memory."""

from pathlib import Path
from typing import Final

# cgroup v2 counts in memory.events (admin-guide/cgroup-v2.rst), v1 in memory.oom_control (cgroup-v1/memory.rst).
_COUNTERS: Final = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))


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
