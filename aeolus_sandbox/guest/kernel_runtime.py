"""The private folder of the guest: where the kernel's sockets, connection file and dot files live."""

import contextlib
import json
import os
import secrets
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any, Final, Literal

_PORT_NAMES: Final = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


class KernelRuntime:
    """A folder of mode 0700 under the temporary folder, kept over restarts of the kernel.

    It is kept so that a restart needs no disk space: the code may have filled the disk.
    """

    def __init__(self) -> None:
        # Boundary: mkdtemp makes the folder 0700, so that no other user of the container reaches the sockets.
        self.path = Path(tempfile.mkdtemp(prefix="aeolus-"))
        self.connection_file = self.path / "connection.json"
        self.connection: dict[str, Any] = {
            "key": secrets.token_hex(32),
            "signature_scheme": "hmac-sha256",
        }

    def prepare(self, transport: Literal["ipc", "tcp"]) -> None:
        """Make the folder ready for a kernel, whatever the one before has left there, and say where its sockets are.

        Raises:
            OSError: The disk is full, say.
        """
        self.path.mkdir(mode=0o700, exist_ok=True)
        for left in self.path.glob("kernel-*"):
            left.unlink()
        self.connection |= self._ipc() if transport == "ipc" else _loopback()
        text = json.dumps(self.connection)
        if self._connection_text() != text:
            self.connection_file.unlink(missing_ok=True)
            self.connection_file.touch(mode=0o600)
            self.connection_file.write_text(text, encoding="utf-8")

    def environment(self, extra: dict[str, str]) -> dict[str, str]:
        """Return the kernel's environment: that of the guest, without what is the guest's own.

        `{folder}` in a value of `extra` stands for the private folder.
        """
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if not _writable_folder(environment.get("HOME")):
            environment["HOME"] = str(Path.cwd())
        environment["IPYTHONDIR"] = str(self.path / "ipython")
        environment["MPLCONFIGDIR"] = self._matplotlib_folder(environment.get("MPLCONFIGDIR"))
        return {
            **environment,
            **{name: value.replace("{folder}", str(self.path)) for name, value in extra.items()},
        }

    def remove(self) -> None:
        """Remove the folder; a second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _ipc(self) -> dict[str, Any]:
        ports = {name: number for number, name in enumerate(_PORT_NAMES, start=1)}
        return {
            "transport": "ipc",
            "ip": str(self.path / "kernel"),
            **ports,
        }  # sockets are called <ip>-<port>

    def _connection_text(self) -> str | None:
        try:
            return self.connection_file.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None

    def _matplotlib_folder(self, shipped: str | None) -> str:
        """Return a folder that matplotlib can write to, with the font cache that an image may ship read-only."""
        if _writable_folder(shipped):
            return str(shipped)
        folder = self.path / "matplotlib"
        if shipped and not folder.exists():
            with contextlib.suppress(OSError):  # only the time to build the cache is lost
                shutil.copytree(shipped, folder)
        return str(folder)


def _loopback() -> dict[str, Any]:
    """Return an address on the loopback device with ports that are free now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in _PORT_NAMES]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = {name: each.getsockname()[1] for name, each in zip(_PORT_NAMES, sockets, strict=True)}
    return {"transport": "tcp", "ip": "127.0.0.1", **ports}


def _writable_folder(path: str | None) -> bool:
    return bool(path) and Path(str(path)).is_dir() and os.access(str(path), os.W_OK | os.X_OK)
