"""Paths that no command for a workspace has any business with, and what writing to them means."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal

from aeolus_sandbox.tools.terminal.shell_expansion import HOME, UNKNOWN, UNSET
from aeolus_sandbox.tools.terminal.shell_tree import plain

Severity = Literal["danger", "suspicious"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rule that a command breaks."""

    rule: str
    severity: Severity
    message: str


SYSTEM_DIRECTORIES: Final = frozenset(
    {
        f"/{name}"
        for name in [
            "bin",
            "boot",
            "dev",
            "etc",
            "home",
            "lib",
            "lib32",
            "lib64",
            "libx32",
            "opt",
            "proc",
            "root",
            "run",
            "sbin",
            "srv",
            "sys",
            "usr",
            "var",
        ]
    }
    | {
        f"/usr/{name}"
        for name in ["bin", "include", "lib", "lib32", "lib64", "libexec", "local", "sbin", "share"]
    }
    | {"/var/lib", "/usr/local/bin", "/usr/local/lib"}
)
"""Directories that no command for a workspace deletes whole; `/tmp` and `/workspace` are not among them."""
SHARED_DIRECTORIES: Final = frozenset(
    {"/home", "/opt", "/srv", "/usr/local", "/usr/local/bin", "/usr/local/lib"}
)
"""Those of them whose owner or mode people do change."""
CRITICAL_FILES: Final = (
    *(
        f"/etc/{name}"
        for name in [
            "passwd",
            "shadow",
            "group",
            "gshadow",
            "sudoers",
            "fstab",
            "crontab",
            "inittab",
            "ld.so.preload",
        ]
    ),
    *(f"/etc/{name}" for name in ["ld.so.conf", "profile", "nsswitch.conf", "securetty", "pam.conf"]),
    *("/etc/sudoers.d/*", "/etc/pam.d/*", "/etc/cron*/*", "/etc/ssh/*", "/root/.ssh/*", "/boot/*"),
    *("/proc/sysrq-trigger", "/proc/sys/kernel/*", "/sys/kernel/*", "/lib*/ld-*", "/lib*/libc.so*"),
)
SYSTEM_FILES: Final = (
    "/bin/*",
    "/sbin/*",
    "/usr/bin/*",
    "/usr/sbin/*",
    "/lib/*",
    "/lib64/*",
    "/usr/lib/*",
    "/proc/sys*",
)
RAW_DEVICES: Final = (
    *[
        "sd[a-z]*",
        "hd[a-z]*",
        "vd[a-z]*",
        "xvd*",
        "nvme*",
        "mmcblk*",
        "dm-*",
        "mapper/?*",
        "md[0-9]*",
        "loop[0-9]*",
        "sr[0-9]*",
        "nbd*",
        "rbd*",
    ],
    *[
        "zram*",
        "ram[0-9]*",
        "mtd*",
        "bcache*",
        "zd[0-9]*",
        "disk/?*",
        "block/?*",
        "mem",
        "kmem",
        "port",
        "kmsg",
        "nvram",
        "fd[0-9]*",
    ],
)
SAMPLE_DEVICES: Final = ("sda", "sda1", "nvme0n1", "vda", "mem")
"""For a glob in a device's name: is one of these meant?"""


def resolve(path: str, cwd: str | None) -> tuple[str, ...] | None:
    """The components of a path in normal form, or None where it starts somewhere unknown.

    A path in the home directory starts with `HOME`.
    """
    if not path.startswith(("/", HOME)):
        if cwd is None:
            return None
        path = f"{cwd}/{path}"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if parts and parts.pop() == HOME:
                parts.append("/home")
        elif part not in ("", "."):
            parts.append(part)
    return tuple("home" if part == "/home" else part for part in parts)


def _matches_all(part: str) -> bool:
    return part.startswith("!(") or ("*" in part and not part.strip("*?.[]!^"))


def protected(path: str, cwd: str | None) -> Literal["root", "system", "home"] | None:
    """Which protected directory a path means, itself or all that is in it."""
    found = resolve(path, cwd)
    if found is None:
        return None
    while found and _matches_all(found[-1]):
        found = found[:-1]
    if not found:
        return "root"
    if found == (HOME,):
        return "home"
    pattern = "/" + "/".join(found)
    if len(found) > 3 or len(pattern) > 128:
        return None
    if not re.search(r"[*?\[]", pattern):
        return "system" if plain(pattern) in SYSTEM_DIRECTORIES else None
    pattern = pattern.replace("[^", "[!")
    meant = any(fnmatchcase(name, pattern) for name in SYSTEM_DIRECTORIES if name.count("/") == len(found))
    return "system" if meant else None


def is_file_of(path: str, cwd: str | None, patterns: Iterable[str]) -> bool:
    """Whether a path matches one of some patterns of absolute paths."""
    found = resolve(path, cwd)
    name = plain("/" + "/".join(found or ()))
    return found is not None and len(name) < 256 and any(fnmatchcase(name, pattern) for pattern in patterns)


def is_raw_device(path: str, cwd: str | None = None) -> bool:
    """Whether a path is a disk or the memory itself; terminals, null and the like are not."""
    found = resolve(path, cwd)
    if not found or found[0] != "dev" or len(found) < 2:
        return False
    name = "/".join(found[1:])
    if len(name) > 128 or name.startswith(("fd/", "shm/")) or name == "fd":
        return False
    return any(fnmatchcase(plain(name), pattern) for pattern in RAW_DEVICES) or (
        ("*" in name or "?" in name or "[" in name)
        and any(fnmatchcase(sample, name) for sample in SAMPLE_DEVICES)
    )


def judge_write(path: str, cwd: str | None, *, append: bool = False) -> Iterator[Verdict]:
    """What is wrong with writing to a path."""
    shown = plain(path)
    if is_raw_device(path, cwd):
        yield Verdict("raw_device_write", "danger", f"it writes to the raw device {shown!r}")
    elif is_file_of(path, cwd, CRITICAL_FILES):
        severity: Severity = "suspicious" if append else "danger"
        yield Verdict("system_file_overwrite", severity, f"it writes to the system file {shown!r}")
    elif is_file_of(path, cwd, SYSTEM_FILES):
        yield Verdict("system_file_overwrite", "suspicious", f"it writes into a system directory: {shown!r}")


def shown(text: str) -> str:
    """A field as people read it."""
    text = plain(text).replace(HOME, "~").replace(UNSET, "").replace(UNKNOWN, "?")
    return repr(text if len(text) <= 60 else text[:57] + "...")
