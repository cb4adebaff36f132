"""A Docker engine of the tests' own, which may be killed and restarted, and a proxy that cuts connections."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import docker

START_LIMIT_S: Final = 90


class SecondEngine:
    """A `dockerd` beside the user's, with everything of its own; it needs root, as every engine does."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="aeolus-engine-"))
        self.socket = self.folder / "engine.sock"
        self.address = f"unix://{self.socket}"
        self._pid_file = self.folder / "engine.pid"
        self._log = self.folder / "engine.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        program = shutil.which("dockerd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        assert program, "these tests start an engine of their own, and there is no dockerd"
        # A killed one leaves files that can keep the next from starting.
        self._pid_file.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)
        containerd = self.folder / "exec" / "containerd"
        for name in ("containerd.pid", "containerd.sock", "containerd.sock.ttrpc"):
            (containerd / name).unlink(missing_ok=True)
        config = self.folder / "daemon.json"
        config.write_text("{}")
        # In a network namespace of its own: told to have no bridge, it removes `docker0`, the other engine's.
        command = [
            "unshare",
            "--net",
            program,
            f"--data-root={self.folder / 'data'}",
            f"--exec-root={self.folder / 'exec'}",
            f"--pidfile={self._pid_file}",
            f"--host={self.address}",
            f"--config-file={config}",  # not what the user's own engine is told
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            "--storage-driver=overlay2",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._wait_until_it_answers()

    def load(self, reference: str) -> None:
        """Copy an image from the user's engine."""
        source, target = docker.from_env(timeout=300), docker.DockerClient(self.address, timeout=300)
        try:
            target.images.load(b"".join(source.images.get(reference).save(named=True)))
        finally:
            source.close()
            target.close()

    def kill(self) -> None:
        """End it as a crash does, its containerd included; its containers live on."""
        self._end(signal.SIGKILL)
        for pid in self._processes("containerd.toml"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End it in the usual way."""
        self._end(signal.SIGTERM)

    def remove(self) -> None:
        """Remove its containers, end it, and remove its files."""
        with suppress(Exception):
            self._remove_containers()
        self.stop()
        self._end_what_is_left()
        for mount in self._mounts():
            subprocess.run(["umount", "-l", mount], check=False, timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _remove_containers(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.start()
        client = docker.DockerClient(self.address, timeout=30)
        try:
            for container in client.containers.list(all=True, ignore_removed=True):
                container.remove(force=True)
        finally:
            client.close()

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while not self._answers():
            assert self._process is not None
            alive = self._process.poll() is None
            assert alive, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.2)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            try:
                connection.connect(str(self.socket))
                connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(100)
            except OSError:
                return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(30)

    def _end_what_is_left(self) -> None:
        """End what is left of this engine: its containerd and the shims of its containers."""
        for _ in range(50):
            left = self._processes()
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                return
            time.sleep(0.1)

    def _processes(self, also: str = "") -> list[int]:
        """Return the processes whose command lines name this engine's folder, and something else."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                command = (entry / "cmdline").read_text("utf-8", "replace") if entry.name.isdigit() else ""
                if str(self.folder) in command and also in command:
                    found.append(int(entry.name))
        return found

    def _mounts(self) -> list[str]:
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return sorted((point for point in points if point.startswith(str(self.folder))), reverse=True)


class CuttingProxy:
    """A socket in front of an engine, whose connections can be cut and refused."""

    def __init__(self, target: Path, folder: Path) -> None:
        self._target = target
        self._path = folder / "proxy.sock"
        self.address = f"unix://{self._path}"
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._serve, str(self._path))

    async def cut(self) -> None:
        """Cut all connections and refuse new ones."""
        assert self._server is not None
        self._server.close()
        self._path.unlink(missing_ok=True)
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        engine_reader, engine_writer = await asyncio.open_unix_connection(str(self._target))
        self._writers |= {writer, engine_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, engine_writer))
                group.create_task(self._copy(engine_reader, writer))
        finally:
            self._writers -= {writer, engine_writer}
            writer.transport.abort()
            engine_writer.transport.abort()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                with suppress(OSError):
                    writer.write_eof()


async def serve_http(path: Path, answer: Callable[[str], tuple[int, str]]) -> asyncio.Server:
    """Serve a made-up engine on a socket: `answer` gives status and JSON body for a request line."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            status, body = answer(head.splitlines()[0])
            reply = (
                f"HTTP/1.1 {status} Made up\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
            )
            writer.write(reply.encode())
            await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(serve, str(path))
