"""`LocalEngine`: an engine whose "containers" are plain processes of this machine, for tests without Docker."""

import asyncio
import fcntl
import os
import shutil
import signal
import struct
import tempfile
import termios
import uuid
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.engine.base import (
    ContainerExit,
    ContainerId,
    ContainerInfo,
    ContainerSpec,
    EngineInfo,
)
from aeolus_sandbox.errors import (
    EngineError,
    EngineTimeout,
    EngineUnavailable,
    ImageNotFound,
    LaunchFailed,
    RuntimeMissing,
)
from aeolus_sandbox.testing.local_processes import (
    SIGNAL_BASE,
    Place,
    kill_all,
    living_processes,
    send_signal,
    start_process,
)
from aeolus_sandbox.testing.local_stream import LocalStream

if TYPE_CHECKING:
    import subprocess

EngineCall = Literal[
    "launch",
    "list_containers",
    "remove_container",
    "info",
    "wait_exit",
    "signal",
    "signal_foreground",
    "resize",
    "kill",
]
"""A call that can be made to fail."""
_END_TIMEOUT_S: Final = 10.0


class LocalEngine:
    """An engine without any isolation: never for untrusted code. See `Engine` for the promises.

    What a specification says of limits, users and mounts is ignored; its working directory is a temporary folder.
    Needs Linux, because it finds a container's processes in `/proc`.
    """

    def __init__(
        self, *, images: Collection[str] | None = None, runtimes: Collection[str] = ("none",)
    ) -> None:
        """Make an engine that has these images (None: whatever is asked for), and answers to these runtimes."""
        self._images = None if images is None else frozenset(images)
        self._runtimes = tuple(sorted(runtimes))
        self._containers: dict[ContainerId, LocalContainer] = {}
        self._background = BackgroundTasks()
        self._faults: defaultdict[EngineCall, deque[Exception]] = defaultdict(deque)
        self._connected = True
        self.mark = uuid.uuid4().hex
        """What the marks of all processes of this engine begin with."""
        self.launches = 0
        """How many containers have been asked for."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    # Faults.

    def fail_next(self, call: EngineCall, error: Exception, *, times: int = 1) -> None:
        """Make the next call of this kind, or the next few, fail without any effect."""
        self._faults[call].extend([error] * times)

    def lose_connection(self) -> None:
        """Cut all streams, fail all waits, and answer nothing until `restore_connection`; containers run on."""
        self._connected = False
        for container in self._containers.values():
            container.lose_connection()

    def restore_connection(self) -> None:
        """Answer again."""
        self._connected = True

    async def living_processes(self) -> list[int]:
        """Return the processes of all containers that there ever were, which still run."""
        return await asyncio.to_thread(living_processes, self.mark)

    # The engine.

    @property
    def address(self) -> None:
        """No other process can reach it."""
        return

    async def launch(self, spec: ContainerSpec) -> "LocalContainer":
        """Start a process; see `Engine.launch`."""
        self.launches += 1
        self.check("launch")
        if self._images is not None and spec.image not in self._images:
            msg = f"the image {spec.image!r} is not on the engine: it has {', '.join(sorted(self._images))}"
            raise ImageNotFound(msg)
        if spec.runtime is not None and spec.runtime not in self._runtimes:
            msg = f"the engine has no runtime {spec.runtime!r}: it has {', '.join(self._runtimes)}"
            raise RuntimeMissing(msg)
        task = self._background.start(self._launch(spec), name="launch", awaited=True)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            self._background.start(_discard(task), name="discard an abandoned launch")
            raise
        return task.result()

    async def list_containers(self, labels: Mapping[str, str | None]) -> list[ContainerInfo]:
        """Return all containers with these labels; see `Engine.list_containers`."""
        self.check("list_containers")
        return [each.info for each in self._containers.values() if _has_labels(each.info.labels, labels)]

    async def remove_container(self, container: ContainerId) -> None:
        """Kill and remove a container; see `Engine.remove_container`."""
        self.check("remove_container")
        if (found := self._containers.get(container)) is not None:
            await found.end()
            self._containers.pop(container, None)

    async def info(self) -> EngineInfo:
        """Return what there is to say; see `Engine.info`."""
        self.check("info")
        return EngineInfo(
            name="local processes",
            version="1",
            api_version="0",
            address="",
            cgroup_version="",
            storage_driver="",
            security_options=(),
            runtimes=self._runtimes,
            default_runtime="none",
            warnings=("there is no isolation",),
        )

    async def aclose(self) -> None:
        """End everything: what is left here would outlive its engine."""
        await self._background.aclose(timeout_s=_END_TIMEOUT_S)
        for name, container in list(self._containers.items()):
            await container.end()
            self._containers.pop(name, None)

    def check(self, call: EngineCall) -> None:
        """Fail a call if it is to fail.

        Raises:
            EngineUnavailable: The connection is lost.
        """
        if not self._connected:
            msg = f"could not {call.replace('_', ' ')}: the connection to the engine is lost"
            raise EngineUnavailable(msg)
        if self._faults[call]:
            raise self._faults[call].popleft()

    def knows(self, container: ContainerId) -> bool:
        """Return whether a container has not been removed."""
        return container in self._containers

    async def _launch(self, spec: ContainerSpec) -> "LocalContainer":
        container = LocalContainer(self, spec, await LocalStream.connected(tty=spec.tty))
        self._containers[container.id] = container
        try:
            await container.start()
        except OSError as error:
            await self.remove_container(container.id)
            msg = f"could not start a process: {error}"
            raise LaunchFailed(msg) from error
        return container


class LocalContainer:
    """One started process with all that it starts; see `EngineContainer` for the promises."""

    def __init__(self, engine: LocalEngine, spec: ContainerSpec, stream: LocalStream) -> None:
        self.id = ContainerId(uuid.uuid4().hex)
        self.stream = stream
        self._engine = engine
        self._mark = f"{engine.mark}/{self.id}"
        self._spec = spec
        self._place: Place | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._code: int | None = None
        self._tasks = BackgroundTasks()
        self._over = asyncio.Event()
        self._starting = asyncio.Lock()
        self._removed = False
        self._cuts = 0

    @property
    def info(self) -> ContainerInfo:
        """What the engine lists."""
        state = "created" if self._process is None else "running" if self._code is None else "exited"
        return ContainerInfo(self.id, dict(self._spec.labels), state)

    async def start(self) -> None:
        """Start the process.

        Raises:
            OSError: The system refused.
        """
        async with self._starting:
            if self._removed:
                raise FileNotFoundError(self.id)
            process = self._process = await asyncio.to_thread(self._start_process)
        descriptor = os.pidfd_open(process.pid)

        def ended() -> None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)
            self._tasks.start(self._finish(process), name="end a container")

        asyncio.get_running_loop().add_reader(descriptor, ended)

    async def wait_exit(self) -> ContainerExit:
        """Wait for the end; see `EngineContainer.wait_exit`."""
        self._engine.check("wait_exit")
        if not self._engine.knows(self.id):
            msg = f"could not wait for a container: there is no {self.id!r}"
            raise EngineError(msg)
        cuts = self._cuts
        while self._code is None:
            await self._over.wait()
            if cuts != self._cuts:
                msg = "could not wait for a container: the connection to the engine was lost"
                raise EngineUnavailable(msg)
        return ContainerExit(self._code, out_of_memory=False)

    async def signal(self, name: str) -> None:
        """Send a signal; see `EngineContainer.signal`."""
        self._engine.check("signal")
        if self._process is not None and self._code is None:
            send_signal(self._process.pid, signal.Signals[name])

    async def signal_foreground(self, name: str) -> None:
        """Send a signal to the terminal's foreground group; see `EngineContainer.signal_foreground`."""
        self._engine.check("signal_foreground")
        if self.stream.terminal is not None and self._code is None:
            send_signal(-os.tcgetpgrp(self.stream.terminal), signal.Signals[name])

    async def resize(self, *, cols: int, rows: int) -> None:
        """Set the terminal's size; see `EngineContainer.resize`."""
        self._engine.check("resize")
        if self.stream.terminal is not None and self._code is None:
            fcntl.ioctl(self.stream.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    async def kill(self) -> None:
        """Kill all processes; see `EngineContainer.kill`."""
        self._engine.check("kill")
        await self._kill()

    async def aclose(self) -> None:
        """Detach and remove the container; see `EngineContainer.aclose`."""
        await self.stream.aclose()
        await self._engine.remove_container(self.id)

    def lose_connection(self) -> None:
        """Cut the stream and fail the waits."""
        self._cuts += 1
        self.stream.detach(EngineError("the attach connection was lost"))
        self._over.set()
        if self._code is None:
            self._over.clear()

    async def end(self) -> None:
        """Kill all processes, and leave nothing of them."""
        async with self._starting:  # one that is just starting could not be killed yet
            self._removed = True
        await self._kill()
        await self._tasks.aclose(timeout_s=_END_TIMEOUT_S)
        self.stream.dispose()
        if self._place is not None:
            await asyncio.to_thread(shutil.rmtree, self._place.folder, ignore_errors=True)

    async def _kill(self) -> None:
        if self._process is None or self._code is not None:
            return
        send_signal(self._process.pid, signal.SIGKILL)
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                while self._code is None:
                    await self._over.wait()
        except TimeoutError as error:
            msg = f"the process {self._process.pid} does not end"
            raise EngineTimeout(msg) from error

    def _start_process(self) -> "subprocess.Popen[bytes]":
        self._place = Place(Path(tempfile.mkdtemp(prefix="aeolus-local-")), self._spec.working_dir)
        self._place.make()
        ends = self.stream.container_ends
        return start_process(
            self._spec.argv,
            self._place,
            self._place.environment(self._spec.env, self._mark),
            terminal=os.ttyname(ends[0]) if self._spec.tty else None,
            pipes=() if self._spec.tty else ends,
        )

    async def _finish(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill what the first process has left behind, as the end of a container does, then note the end."""
        try:
            # Before it is waited for: until then nothing else can get its number, which is the session's.
            await asyncio.to_thread(kill_all, process.pid, self._mark)
        finally:
            code = process.wait()
            self._code = code if code >= 0 else SIGNAL_BASE - code
            self.stream.container_ended()
            self._over.set()


def _has_labels(labels: Mapping[str, str], wanted: Mapping[str, str | None]) -> bool:
    return all(name in labels and value in {None, labels[name]} for name, value in wanted.items())


async def _discard(task: "asyncio.Task[LocalContainer]") -> None:
    """Wait for a launch that nobody wants any more, and end what it made."""
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await task.result().aclose()
