"""Docker as the container engine: the one door to aiodocker (and to aiohttp, which its connections are made of)."""

import asyncio
import json
import logging
import os
import uuid
import weakref
from collections.abc import Awaitable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Self

import aiodocker
import aiohttp
from yarl import URL

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.engine.attach import HijackedStream
from aeolus_sandbox.engine.base import ContainerExit, ContainerId, ContainerInfo, ContainerSpec, EngineInfo
from aeolus_sandbox.engine.docker_config import container_config
from aeolus_sandbox.engine.docker_errors import (
    engine_call,
    missing_program,
    missing_runtime_program,
    runtime_missing,
)
from aeolus_sandbox.errors import EngineError, EngineUnavailable, ImageNotFound, LaunchFailed, ShellMissing
from aeolus_sandbox.retrying import retry_while_retryable

_logger = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 30.0
"""How long one call to the engine may take; a hung engine must never hang us."""
START_TIMEOUT_S: Final = 60.0
_REMOVE_TIMEOUT_S: Final = 20.0
_KNOWN_SOCKETS: Final = ("/var/run/docker.sock", "~/.docker/run/docker.sock", "~/.docker/desktop/docker.sock")
# Boundary: without any, Docker takes Ctrl-P Ctrl-Q on a terminal for the wish to detach, and the session is lost (a file
# with all bytes has the two). Nobody types these, or can guess them. They must be something; and the beginning of them
# is held back until the next byte comes, so that it must not be one that is typed either: 0xFF is not in UTF-8.
_DETACH_KEYS: Final = "%2C".join(["%FF", *(f"%{128 + byte % 128:02X}" for byte in os.urandom(15))])
OLDEST_API: Final = (1, 40)
"""Docker 19.03's: the oldest whose create call has every field that the hardening sets."""


def engine_address(docker_host: str | None = None) -> str:
    """Return the address of the engine: the argument, else `DOCKER_HOST`, else the socket that exists.

    Raises:
        EngineUnavailable: There is none of them.
    """
    if address := docker_host or os.environ.get("DOCKER_HOST"):
        return address
    for socket in _KNOWN_SOCKETS:
        path = Path(socket).expanduser()
        if path.is_socket():
            return f"unix://{path}"
    msg = (
        f"no Docker engine: DOCKER_HOST is not set and there is no socket at {_KNOWN_SOCKETS[0]}; "
        "start Docker (scripts/setup does), or set DOCKER_HOST"
    )
    raise EngineUnavailable(msg)


class DockerEngine:
    """A Docker engine, local or remote; see `Engine` for the promises."""

    def __init__(self, docker_host: str | None = None, *, call_timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._asked_address = docker_host
        self._call_timeout_s = call_timeout_s
        self._client: aiodocker.Docker | None = None
        self._connector: aiohttp.UnixConnector | None = None
        self._api_is_known = False
        self._process = os.getpid()
        self._background = BackgroundTasks()
        self._streams: weakref.WeakSet[HijackedStream] = weakref.WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    @property
    def address(self) -> str:
        """Where the engine answers."""
        return engine_address(self._asked_address)

    async def launch(self, spec: ContainerSpec) -> "DockerContainer":
        """Create, attach to and start a container; see `Engine.launch`."""
        # The daemon creates a container even when the client has gone: so a cancelled launch runs on, then cleans up.
        task = self._background.start(self._launch(spec), name="launch", awaited=True)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            self._background.start(_discard(task), name="discard an abandoned launch")
            raise
        return task.result()

    async def list_containers(self, labels: Mapping[str, str | None]) -> list[ContainerInfo]:
        """Return all containers with these labels; see `Engine.list_containers`."""
        wanted = [name if value is None else f"{name}={value}" for name, value in labels.items()]
        async with self._call("list containers"):
            found = await self._docker().containers.list(all=1, filters=json.dumps({"label": wanted}))
        return [
            ContainerInfo(ContainerId(each.id), dict(each["Labels"] or {}), str(each["State"]))
            for each in found
        ]

    async def remove_container(self, container: ContainerId) -> None:
        """Kill and remove a container; see `Engine.remove_container`."""
        await retry_while_retryable(lambda: self._remove_once(container))

    async def info(self) -> EngineInfo:
        """Return what the engine says of itself; see `Engine.info`."""
        async with self._call("ask for its version"):
            version = await self._docker().version()
            about = await self._docker().system.info()
        return EngineInfo(
            name=str((version.get("Platform") or {}).get("Name") or "Docker Engine"),
            version=str(version.get("Version")),
            api_version=str(version.get("ApiVersion")),
            address=self.address,
            cgroup_version=str(about.get("CgroupVersion", "1")),
            storage_driver=str(about.get("Driver")),
            security_options=tuple(about.get("SecurityOptions") or ()),
            runtimes=tuple(sorted(about.get("Runtimes") or {})),
            default_runtime=str(about.get("DefaultRuntime")),
            warnings=tuple(about.get("Warnings") or ()),
        )

    async def aclose(self) -> None:
        """Finish what is under way and close all connections."""
        await self._background.aclose(timeout_s=START_TIMEOUT_S)
        for stream in list(self._streams):  # aiohttp waits for every open connection when it closes
            await stream.aclose()
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        if self._connector is not None:  # aiodocker leaves a connector that it was given to its giver
            await self._connector.close()

    async def _launch(self, spec: ContainerSpec) -> "DockerContainer":
        container = await retry_while_retryable(lambda: self._create(spec))
        try:
            if spec.runtime is not None:
                await self._check_runtime(container, spec.runtime)
            stream = await self._attach(container, tty=spec.tty)
            try:
                await self._start(container, spec)
            except BaseException:
                await stream.aclose()
                raise
        except BaseException:
            await self.remove_container(ContainerId(container.id))
            raise
        return DockerContainer(self, container, stream)

    async def _create(self, spec: ContainerSpec) -> aiodocker.containers.DockerContainer:
        name = f"aeolus-{uuid.uuid4().hex}"
        try:
            async with self._call(f"create a container of image {spec.image!r}"):
                await self._check_api()
                return await self._docker().containers.create(container_config(spec), name=name)
        except ImageNotFound as error:
            raise await self._missing_image(spec.image) from error
        except EngineError as error:
            if error.retryable:  # it may have been created although we did not hear of it
                await self._forget_by_name(name)
            raise

    async def _check_api(self) -> None:
        if self._api_is_known:
            return
        spoken = str((await self._docker().version())["ApiVersion"])
        if tuple(int(part) for part in spoken.split(".") if part.isdigit()) < OLDEST_API:
            wanted = ".".join(map(str, OLDEST_API))
            msg = f"the engine at {self.address!r} is too old: it speaks API {spoken}, and {wanted} is needed (Docker 20.10)"
            raise EngineError(msg)
        self._api_is_known = True

    async def _forget_by_name(self, name: str) -> None:
        try:
            await self._remove_once(ContainerId(name))
        except EngineUnavailable:
            _logger.debug("the container %r may be left behind until it is reaped", name)
        except EngineError as error:
            _logger.warning("the container %r may be left behind until it is reaped: %s", name, error)

    async def _attach(self, container: aiodocker.containers.DockerContainer, *, tty: bool) -> HijackedStream:
        docker = self._docker()
        url = URL(f"{docker.docker_host}/{docker.api_version}/containers/{container.id}/attach")
        async with self._call("attach to a container"):
            response = await docker.session.post(
                URL(f"{url}?stream=1&stdin=1&stdout=1&stderr=1&detachKeys={_DETACH_KEYS}", encoded=True),
                headers={"Connection": "Upgrade", "Upgrade": "tcp"},
                timeout=aiohttp.ClientTimeout(total=None, sock_read=None),
                read_until_eof=False,
            )
            if response.status >= 400:
                raise aiodocker.DockerError(response.status, await response.text())
            stream = HijackedStream(response, tty=tty)
            self._streams.add(stream)
            return stream

    async def _check_runtime(self, container: aiodocker.containers.DockerContainer, runtime: str) -> None:
        # Boundary: an engine that does not know the field (Podman's API) would use its default runtime, silently.
        async with self._call("inspect a container"):
            made_with = (await container.show())["HostConfig"].get("Runtime")
        if made_with != runtime:
            raise runtime_missing(runtime, self.address, f"it would have used {made_with!r}")

    async def _start(self, container: aiodocker.containers.DockerContainer, spec: ContainerSpec) -> None:
        try:
            async with self._call(f"start a container of image {spec.image!r}", timeout_s=START_TIMEOUT_S):
                await container.start()
        except EngineError as error:
            if spec.runtime is not None and missing_runtime_program(error):
                raise runtime_missing(spec.runtime, self.address, str(error)) from error
            if missing_program(error):
                msg = f"the image {spec.image!r} has no program {spec.argv[0]!r} to start"
                raise ShellMissing(msg) from error
            if error.retryable:
                raise
            msg = f"the engine could not start a container of image {spec.image!r}: {error}"
            raise LaunchFailed(msg) from error

    async def _remove_once(self, container: ContainerId) -> None:
        docker = self._docker()
        async with self._call("remove a container", timeout_s=_REMOVE_TIMEOUT_S):
            try:
                await docker.containers.container(container).delete(force=True, v=True)
            except aiodocker.DockerError as error:
                if error.status == 404:  # gone already
                    return
                if error.status != 409:  # not "somebody else is removing it"
                    raise
                await self._wait_until_gone(container)

    async def _wait_until_gone(self, container: ContainerId) -> None:
        while True:
            try:
                await self._docker().containers.get(container)
            except aiodocker.DockerError as error:
                if error.status == 404:
                    return
                raise
            await asyncio.sleep(0.05)

    async def _missing_image(self, reference: str) -> ImageNotFound:
        repository = reference.rpartition(":")[0]
        async with self._call("list images"):
            images = await self._docker().images.list()
        tags = sorted(
            tag for image in images for tag in image.get("RepoTags") or () if tag.startswith(f"{repository}:")
        )
        stale = f"; out of date: {', '.join(tags)}" if repository and tags else ""
        if repository.startswith("aeolus/"):
            name = repository.removeprefix("aeolus/")
            return ImageNotFound(
                f"the image {reference!r} is not built{stale}: run `aeolus images build {name}`"
            )
        return ImageNotFound(f"the image {reference!r} is not on the engine{stale}: pull or build it first")

    def _call(self, what: str, *, timeout_s: float | None = None) -> AbstractAsyncContextManager[None]:
        return engine_call(what, address=self.address, timeout_s=timeout_s or self._call_timeout_s)

    def _docker(self) -> aiodocker.Docker:
        if os.getpid() != self._process:
            # Boundary: a forked child that unwinds its copy of our stack must not remove its parent's containers.
            msg = f"this engine's connections belong to process {self._process}: a forked child makes its own"
            raise EngineError(msg)
        if self._client is None:
            address = self.address
            connector = None
            if address.startswith(
                "unix://"
            ):  # aiohttp's own limit of 100 connections would be a limit of 50 sessions
                connector = aiohttp.UnixConnector(address.removeprefix("unix://"), limit=0)
                address = "unix://localhost"  # aiodocker builds URLs from it; the connector knows the path
            self._client = aiodocker.Docker(address, connector=connector)
            self._connector = connector
        return self._client


class DockerContainer:
    """One started container; see `EngineContainer` for the promises."""

    def __init__(
        self, engine: DockerEngine, container: aiodocker.containers.DockerContainer, stream: HijackedStream
    ) -> None:
        self._engine = engine
        self._container = container
        self.id = ContainerId(container.id)
        self.stream = stream

    async def wait_exit(self) -> ContainerExit:
        """Wait for the end; see `EngineContainer.wait_exit`."""
        # Asked after the start, so that the default condition, "not running", cannot be true too early or never.
        async with engine_call("wait for a container", address=self._engine.address, timeout_s=None):
            answer = await self._container.wait()
        state = await self._state()
        return ContainerExit(int(answer["StatusCode"]), bool(state.get("OOMKilled")))

    async def signal(self, name: str) -> None:
        """Send a signal; see `EngineContainer.signal`."""
        await self._unless_ended("signal a container", self._container.kill(signal=name))

    async def signal_foreground(self, name: str) -> None:
        """Send a signal to the terminal's foreground group; see `EngineContainer.signal_foreground`."""
        # The engine signals only the first process. Who is in front is field 8 of proc_pid_stat(5), "tpgid".
        script = 'read -r _ _ _ _ _ _ _ front _ </proc/1/stat && kill -s "$1" -- "-$front"'
        command = ["sh", "-c", script, "sh", name.removeprefix("SIG")]
        async with self._engine._call("signal a container"):  # noqa: SLF001 - one module
            try:
                execution = await self._container.exec(command, stdout=False, stderr=False)
                await execution.start(detach=True)
            except aiodocker.DockerError as error:
                if not _has_ended(error):
                    raise

    async def resize(self, *, cols: int, rows: int) -> None:
        """Set the terminal's size; see `EngineContainer.resize`."""
        await self._unless_ended("resize a terminal", self._container.resize(h=rows, w=cols))

    async def kill(self) -> None:
        """Kill all processes; see `EngineContainer.kill`."""
        await self._unless_ended("kill a container", self._container.kill())

    async def aclose(self) -> None:
        """Close the stream and remove the container; see `EngineContainer.aclose`."""
        # The stream goes first: while an attached client does not read, Docker holds the container's lock, and a
        # kill or removal hangs (https://github.com/moby/moby/issues/41827).
        await self.stream.aclose()
        await self._engine.remove_container(self.id)

    async def _state(self) -> dict[str, Any]:
        async with self._engine._call("inspect a container"):  # noqa: SLF001 - one module
            return dict((await self._container.show())["State"])

    async def _unless_ended(self, what: str, call: Awaitable[None]) -> None:
        async with self._engine._call(what):  # noqa: SLF001 - one module
            try:
                await call
            except aiodocker.DockerError as error:
                if not _has_ended(error):
                    raise


def _has_ended(error: aiodocker.DockerError) -> bool:
    words = ("not running", "process already finished", "cannot exec in a stopped state")
    return error.status in {304, 404, 409} or any(word in error.message for word in words)


async def _discard(task: "asyncio.Task[DockerContainer]") -> None:
    """Wait for a launch that nobody wants any more, and remove what it made."""
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await task.result().aclose()
