"""What Linux counts of processes and of containers: memory and processor time, from /proc and the control groups."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
CGROUPS: Final = Path("/sys/fs/cgroup")
_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What processes use together."""

    memory_bytes: int = 0
    """Their share of what is in memory: PSS, or RSS where that cannot be read (proc_pid_smaps(5))."""
    cpu_s: float = 0.0

    def __add__(self, other: "ProcessUse") -> "ProcessUse":
        return ProcessUse(self.memory_bytes + other.memory_bytes, self.cpu_s + other.cpu_s)


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """What a container's control group counts."""

    own_bytes: int = 0
    """Memory that goes with it: of its processes, of its tmpfs, and of the kernel for it."""
    cache_bytes: int = 0
    """Files of its image that it was the first to read: any container of that image uses them, and the kernel may take
    them back."""
    cpu_s: float = 0.0

    def __add__(self, other: "ContainerUse") -> "ContainerUse":
        return ContainerUse(
            self.own_bytes + other.own_bytes, self.cache_bytes + other.cache_bytes, self.cpu_s + other.cpu_s
        )


def processes_named(names: Iterable[str], *, proc: Path = PROC) -> list[int]:
    """Return the processes of these programs, which proc_pid_comm(5) cuts at 15 characters."""
    wanted = {name[:15] for name in names}
    return [int(folder.name) for folder in proc.glob("[0-9]*") if _text(folder / "comm").strip() in wanted]


def processes_about(words: Iterable[str], pids: Iterable[int], *, proc: Path = PROC) -> list[int]:
    """Return those of these processes of whose arguments one is one of the words: shims are told by container."""
    wanted = set(words)
    return [pid for pid in pids if wanted & set(_text(proc / str(pid) / "cmdline").split("\0"))]


def process_use(pids: Iterable[int], *, proc: Path = PROC) -> ProcessUse:
    """Return what these processes use; those that have ended count for nothing."""
    return sum((_one_process(proc / str(pid)) for pid in pids), ProcessUse())


def resident_bytes(pid: int, *, proc: Path = PROC) -> int:
    """Return how much of a process is in memory (`VmRSS` in proc_pid_status(5))."""
    return _fields((proc / str(pid) / "status").read_text("ascii"))["VmRSS"] * _KIB


def children_of(pid: int, *, proc: Path = PROC) -> list[int]:
    """Return the processes whose parent this one is, those that have ended and are not waited for included."""
    found = []
    for folder in proc.glob("[0-9]*"):
        _, _, rest = _text(folder / "stat").rpartition(")")
        if rest and int(rest.split()[1]) == pid:
            found.append(int(folder.name))
    return found


def container_use(pid: int, *, proc: Path = PROC, cgroups: Path = CGROUPS) -> ContainerUse:
    """Return what the container counts in which this process is.

    Raises:
        OSError: Its counters cannot be read.
    """
    folders = dict(_control_groups((proc / str(pid) / "cgroup").read_text("ascii")))
    if "memory" not in folders:
        return _version_2(cgroups / folders[""].lstrip("/"))
    return _version_1(
        cgroups / "memory" / folders["memory"].lstrip("/"),
        cgroups / "cpuacct" / folders["cpuacct"].lstrip("/"),
    )


def available_bytes(*, proc: Path = PROC) -> int:
    """Return how much memory new programs can have (`MemAvailable` in proc_meminfo(5))."""
    return _fields((proc / "meminfo").read_text("ascii"))["MemAvailable"] * _KIB


def _one_process(folder: Path) -> ProcessUse:
    name, _, rest = _text(folder / "stat").rpartition(")")
    if not name:
        return ProcessUse()
    ticks = sum(int(field) for field in rest.split()[11:13])  # utime and stime of proc_pid_stat(5)
    share = _fields(_text(folder / "smaps_rollup")).get("Pss")
    if share is None:
        share = _fields(_text(folder / "status")).get("VmRSS", 0)
    return ProcessUse(share * _KIB, ticks / os.sysconf("SC_CLK_TCK"))


def _control_groups(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _version_1(memory: Path, cpu: Path) -> ContainerUse:
    """Read the counters of Documentation/admin-guide/cgroup-v1/memory.rst."""
    counted = _fields((memory / "memory.stat").read_text("ascii"))
    of_tmpfs = counted.get("total_shmem", 0)
    of_kernel = int(_text(memory / "memory.kmem.usage_in_bytes") or 0)
    return ContainerUse(
        own_bytes=counted["total_rss"] + of_tmpfs + of_kernel,
        cache_bytes=counted["total_cache"] - of_tmpfs,
        cpu_s=int((cpu / "cpuacct.usage").read_text("ascii")) / 1e9,
    )


def _version_2(folder: Path) -> ContainerUse:
    """Read the counters of Documentation/admin-guide/cgroup-v2.rst."""
    counted = _fields((folder / "memory.stat").read_text("ascii"))
    of_tmpfs = counted["shmem"]
    return ContainerUse(
        own_bytes=counted["anon"] + of_tmpfs + counted.get("kernel", 0),
        cache_bytes=counted["file"] - of_tmpfs,
        cpu_s=_fields((folder / "cpu.stat").read_text("ascii"))["usage_usec"] / 1e6,
    )


def _fields(text: str) -> dict[str, int]:
    """Return the numbers of lines such as `VmRSS:  1234 kB` and `anon 1234`."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0].rstrip(":"): int(pair[1]) for pair in pairs if len(pair) > 1 and pair[1].isdigit()}


def _text(path: Path) -> str:
    """Return a file's text; nothing where it cannot be read, as when its process has ended."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
