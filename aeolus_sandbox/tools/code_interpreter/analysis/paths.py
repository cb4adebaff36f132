"""Which paths code in the sandbox has any business with."""

import posixpath
import re
from typing import Final

WORKSPACE: Final = "/workspace"
_WRITABLE: Final = (WORKSPACE, "/tmp", "/dev/shm", "/var/tmp")  # noqa: S108 - paths in the sandbox
_DEVICES: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/full"})
# What tells of the machine, and not of other processes or of secrets, is read by honest programs too.
_SECRET: Final = re.compile(
    r"/etc/(shadow|gshadow|sudoers)\b"
    r"|/(root|home/[^/]+|workspace)/\.(ssh|aws|kube|docker|gnupg)\b|/root\b"
    r"|/(var/)?run/(docker\.sock|secrets|containerd)"
    r"|/proc/(kcore|kallsyms|kmsg|sysrq-trigger|sys/kernel|keys)"
    r"|/proc/(self|\d+|thread-self)/(environ|mem|maps|fd|root|cwd|exe|cmdline|task|ns|attach|cgroup|mountinfo)\b"
    r"|/dev/(mem|kmem|port|kmsg|sd[a-z]|nvme|vd[a-z])"
    r"|/sys/(fs/cgroup|kernel|firmware)"
)
_METADATA: Final = re.compile(
    r"(\w+://)?\[?(169\.254\.169\.254|169\.254\.170\.2|100\.100\.100\.200|fd00:ec2::254"
    r"|metadata\.google\.internal|metadata\.azure\.com)\]?\.?([:/].*)?",
    re.DOTALL,
)


def absolute(path: str) -> str:
    """Return a path as the code's process would see it, without `.` and `..`."""
    whole = posixpath.normpath(posixpath.join(WORKSPACE, path.removeprefix("file://")))
    return "/" + whole.lstrip("/")


def is_outside(path: str) -> bool:
    """Whether a path is outside the folders that are the code's own."""
    whole = absolute(path)
    return whole not in _DEVICES and not any(
        whole == root or whole.startswith(f"{root}/") for root in _WRITABLE
    )


def is_secret(path: str) -> bool:
    """Whether what is there is none of the code's business."""
    return _SECRET.match(absolute(path)) is not None


def is_metadata_address(text: str) -> bool:
    """Whether a text is the address of a cloud's metadata service, or a URL there."""
    return len(text) < 2000 and _METADATA.fullmatch(text.strip()) is not None
