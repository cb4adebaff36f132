"""How each language's kernel is started and spoken to."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class KernelCommand:
    """How a kernel is started; `{connection_file}` in an argument stands for the file's path."""

    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    transport: Literal["ipc", "tcp"] = "ipc"
    """`ipc`: sockets in a private folder. `tcp`: ports of the container's own loopback device, for kernels that
    know nothing else; code in the container reaches them too, and needs the key."""


def _ours(program: str, *arguments: str) -> tuple[str, ...]:
    """Return the command of a kernel that is a file beside this one; none of our modules is importable in it."""
    return (sys.executable, "-P", str(Path(__file__).with_name(program)), *arguments)


LANGUAGES: Final = {
    "python": KernelCommand(
        argv=_ours("python_kernel.py", "-f", "{connection_file}", "--HistoryManager.enabled=False")
    ),
}
