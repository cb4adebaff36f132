"""How each language's kernel is started and spoken to."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from aeolus_sandbox.guest.deno_connection import DENO_ENVIRONMENT, DenoConnection
from aeolus_sandbox.guest.kernel_client import AnnouncingConnection, KernelConnection


@dataclass(frozen=True, slots=True)
class KernelCommand:
    """How a kernel is started; `{connection_file}` in an argument stands for the file's path."""

    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    transport: Literal["ipc", "tcp"] = "ipc"
    """`ipc`: sockets in a private folder. `tcp`: ports of the container's own loopback device, for kernels that
    know nothing else; code in the container reaches them too, and needs the key."""
    connection: type[KernelConnection] = KernelConnection
    """How it is spoken to, and what it takes to make its messages whole."""
    out_of_memory_words: bytes = b""
    """What it says last when it ends itself at a memory limit of its own."""
    has_console: bool = False
    """Whether what it writes to its stdout and stderr is output (see `console`), and not only its messages."""
    warm_up: str = ""
    """Code of a cell, told to nobody, that does ahead what makes a first cell slow; empty: nothing does."""


def _ours(program: str, *arguments: str) -> tuple[str, ...]:
    """Return the command of a kernel that is a file beside this one; none of our modules is importable in it."""
    return (sys.executable, "-P", str(Path(__file__).with_name(program)), *arguments)


_DENO: Final = KernelCommand(
    argv=("deno", "jupyter", "--quiet", "--kernel", "--conn", "{connection_file}"),
    environment=DENO_ENVIRONMENT,
    transport="tcp",
    connection=DenoConnection,
    out_of_memory_words=b"JavaScript out of memory",
)

LANGUAGES: Final = {
    "bash": KernelCommand(argv=_ours("bash_kernel.py", "{connection_file}")),
    "javascript": _DENO,
    "python": KernelCommand(
        argv=_ours("python_kernel.py", "-f", "{connection_file}", "--HistoryManager.enabled=False"),
        connection=AnnouncingConnection,
        warm_up="get_ipython().kernel.warm_up()",
    ),
    "r": KernelCommand(
        argv=("R", "--vanilla", "--no-echo", "-f", "/opt/aeolus/r/kernel.R", "--args", "{connection_file}"),
        has_console=True,
    ),
    "typescript": _DENO,
    "wasm": KernelCommand(argv=_ours("wasm_kernel.py", "{connection_file}")),
}
