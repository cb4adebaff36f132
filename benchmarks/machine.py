"""What machine this is."""

import os
import platform
import re
from pathlib import Path

from aeolus_sandbox.engine.base import EngineInfo
from aeolus_sandbox.engine.docker import DockerEngine
from benchmarks.results import Machine


async def describe() -> Machine:
    """Return a description of this machine and its engine."""
    async with DockerEngine() as engine:
        info = await engine.info()
    return Machine(
        processor=_processor(),
        processors=len(processors()),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        engine=(
            f"{info.name} {info.version}, API {info.api_version}, {info.default_runtime}, {info.storage_driver}, "
            f"cgroup v{info.cgroup_version}"
        ),
        runtimes=runtimes(info),
        load_before=os.getloadavg(),
    )


def processors() -> list[int]:
    """Return the numbers of the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def runtimes(info: EngineInfo) -> list[str]:
    """Return what an engine can start containers with, without containerd's own names for what is there anyway."""
    return sorted(name for name in info.runtimes if not name.startswith("io.containerd."))


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()
