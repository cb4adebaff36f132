"""What `doctor` makes of what it is told: one finding for each thing that sandboxes need."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from aeolus_sandbox.engine.base import ContainerInfo, EngineInfo
from aeolus_sandbox.engine.docker import OLDEST_API
from aeolus_sandbox.engine.image_catalog import ImageCatalog
from aeolus_sandbox.engine.images import ImageState
from aeolus_sandbox.errors import AeolusError
from aeolus_sandbox.hardening import GVISOR_RUNTIME
from aeolus_sandbox.sandboxes.reaper import is_abandoned

_LITTLE_DISK_BYTES: Final = 5 * 1024**3
_DOCKER_DATA: Final = Path("/var/lib/docker")
_SLOW_STORAGE: Final = frozenset({"vfs", "devicemapper", "aufs"})
_FATAL_WARNINGS: Final = ("No memory limit support", "No cpu cfs quota support", "No pids limit support")
_MEMORY_WARNINGS: Final = (
    "No swap limit support",
    "No swap",
    "No kernel memory",
    "No oom kill disable support",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Literal["ok", "warn", "fail"]
    """`warn`: sandboxes run, but less well or less safely. `fail`: they do not run, or not safely."""
    subject: str
    text: str
    advice: str = ""
    """What to do."""

    def as_record(self) -> dict[str, str]:
        """Return it as JSON takes it."""
        return asdict(self)


def unreachable(error: AeolusError) -> Finding:
    """Return the finding of an engine that does not answer."""
    text, _, advice = str(error).partition("; ")
    return Finding("fail", "engine", text, advice or "see the engine's log")


def about_engine(info: EngineInfo) -> list[Finding]:
    """Return what there is to say about the engine and its barriers."""
    return [
        Finding("ok", "engine", f"{info.name} {info.version} answers at {info.address}"),
        _api(info),
        Finding("ok", "cgroup", f"version {info.cgroup_version}"),
        _storage(info),
        _seccomp(info),
        _user_namespace(info),
        _runtimes(info),
        _gvisor(info),
        *_limits(info),
        *_disk(info),
    ]


def about_images(states: Iterable[ImageState], catalog: ImageCatalog) -> list[Finding]:
    """Return what there is to say about our images; `base` is only there to build on."""
    by_name: dict[str, list[ImageState]] = {}
    for state in states:
        by_name.setdefault(state.name, []).append(state)
    below = {catalog.built_on(name) for name in catalog.names()}
    return [_image(name, found, is_run=name not in below) for name, found in by_name.items()]


def about_containers(containers: Sequence[ContainerInfo]) -> list[Finding]:
    """Return whether containers were left behind by a process that is gone."""
    abandoned = [container.id[:12] for container in containers if is_abandoned(container.labels)]
    if abandoned:
        words = f"{len(abandoned)} abandoned ({', '.join(abandoned[:5])})"
        return [Finding("warn", "containers", words, "run `aeolus reap`")]
    return [Finding("ok", "containers", f"none abandoned, {len(containers)} in use")]


def _api(info: EngineInfo) -> Finding:
    wanted = ".".join(map(str, OLDEST_API))
    parts = info.api_version.split(".")
    if all(part.isdigit() for part in parts) and tuple(map(int, parts)) >= OLDEST_API:
        return Finding("ok", "API", info.api_version)
    return Finding("fail", "API", f"{info.api_version}; {wanted} is needed", "install Docker 20.10 or newer")


def _storage(info: EngineInfo) -> Finding:
    if info.storage_driver in _SLOW_STORAGE:
        return Finding(
            "warn", "storage", f"{info.storage_driver} is slow", "use overlay2, on a file system that has it"
        )
    return Finding("ok", "storage", info.storage_driver)


def _seccomp(info: EngineInfo) -> Finding:
    if any(option.startswith("name=seccomp") for option in info.security_options):
        return Finding("ok", "seccomp", "supported")
    return Finding("fail", "seccomp", "not supported", "use a kernel and an engine with seccomp")


def _user_namespace(info: EngineInfo) -> Finding:
    for option in info.security_options:
        if option.startswith("name=rootless"):
            return Finding("ok", "user namespace", "the engine is rootless")
        if option.startswith("name=userns"):
            return Finding("ok", "user namespace", "remapped")
    advice = 'set "userns-remap": "default" in the engine\'s daemon.json, or use rootless Docker'
    return Finding("warn", "user namespace", "not remapped: one barrier less", advice)


def _runtimes(info: EngineInfo) -> Finding:
    return Finding("ok", "runtimes", f"{', '.join(info.runtimes)} (default {info.default_runtime})")


def _gvisor(info: EngineInfo) -> Finding:
    if GVISOR_RUNTIME in info.runtimes:
        return Finding("ok", "gVisor", f"can be asked for: the engine has the runtime {GVISOR_RUNTIME}")
    # No warning: nothing needs it that does not ask for it.
    return Finding(
        "ok", "gVisor", "not there, and so not to be asked for (`scripts/setup gvisor` installs it)"
    )


def _limits(info: EngineInfo) -> list[Finding]:
    findings = []
    for warning in info.warnings:
        text = warning.removeprefix("WARNING: ")
        if any(each in text for each in _FATAL_WARNINGS):
            findings.append(
                Finding("fail", "limits", text, "turn the cgroup controller on (kernel command line)")
            )
        elif any(each in text for each in _MEMORY_WARNINGS):
            advice = (
                "boot with swapaccount=1, or turn swap off"
                if "swap" in text
                else "use a newer kernel or engine"
            )
            findings.append(Finding("warn", "limits", text, advice))
    return findings or [Finding("ok", "limits", "memory, cpu and pids can be limited")]


def _disk(info: EngineInfo) -> list[Finding]:
    if not info.address.startswith("unix://") or not _DOCKER_DATA.is_dir():
        return []  # it is not known where the engine keeps its data
    free = shutil.disk_usage(_DOCKER_DATA).free
    words = f"{free / 1e9:.1f} GB free in {_DOCKER_DATA}"
    if free < _LITTLE_DISK_BYTES:
        return [Finding("warn", "disk", words, "free some: an image needs about 1 GB while it is built")]
    return [Finding("ok", "disk", words)]


def _image(name: str, states: list[ImageState], *, is_run: bool) -> Finding:
    subject = f"image {name}"
    present = [state for state in states if state.state == "current"]
    stale = [state.reference for state in states if state.state == "stale"]
    if not present:
        text = f"out of date ({', '.join(stale)})" if stale else "missing"
        return Finding("fail" if is_run else "warn", subject, text, f"run `aeolus images build {name}`")
    if stale:
        text = f"{present[0].reference} is current, {len(stale)} older left"
        return Finding("warn", subject, text, f"run `aeolus images remove --stale {name}`")
    return Finding("ok", subject, f"{present[0].reference} is current")
