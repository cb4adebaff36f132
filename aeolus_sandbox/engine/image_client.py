"""The one door to the docker SDK, which is used for images only; the rest of the engine is `engine/docker.py`.

Everything here blocks, and everything has a time limit.
"""

import socket
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from io import BufferedReader, BytesIO, RawIOBase
from typing import Any, Final, cast

import docker
import docker.errors
import requests
import urllib3.exceptions
from docker.types import CancellableStream
from docker.utils import kwargs_from_env

from aeolus_sandbox.engine.image_catalog import VERIFY_LABEL, split_reference
from aeolus_sandbox.engine.interruption import Interruption, interruptible
from aeolus_sandbox.errors import EngineError, EngineTimeout, EngineUnavailable, ImageNotFound

_CALL_LIMIT_S: Final = 60.0
_IMPORT_LIMIT_S: Final = 300.0
_PULL_SILENCE_S: Final = 15.0
"""A registry that says nothing for so long does not answer: a machine without network may just drop packets."""
_PULL_LIMIT_S: Final = 900.0
_STEP_SILENCE_S: Final = 1800.0
BUILD_LIMIT_S: Final = 3600.0
_OUTPUT_LIMIT: Final = 500
"""How many of the last lines of a check container are read."""

Feed = Callable[[Mapping[str, Any]], None]


class _LimitedClient(docker.APIClient):
    """The SDK's client, without its calls that wait forever, and with the last answer at hand to hang up on."""

    silence_limit_s: float = _CALL_LIMIT_S
    answer: requests.Response | None = None

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = self.silence_limit_s
        self.answer = super().send(request, **kwargs)
        return self.answer


class ImageClient:
    """What the image builder needs of an engine; errors are this library's."""

    def __init__(self, address: str) -> None:
        self.address = address
        with self._mapped("connect"):
            _knock(address)
            settings = kwargs_from_env() | {"base_url": address}  # TLS settings are the environment's
            self._api = _LimitedClient(**settings, timeout=int(_CALL_LIMIT_S))

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def images(self, *, intermediate: bool = False, **filters: Any) -> list[dict[str, Any]]:
        """List images by label, reference or being dangling; `intermediate` adds the steps of builds."""
        with self._mapped("list images"):
            return cast("list[dict[str, Any]]", self._api.images(filters=filters, all=intermediate))

    def config(self, reference: str) -> dict[str, Any]:
        """Return the image's configuration.

        Raises:
            ImageNotFound: There is no such image.
        """
        with self._mapped(f"inspect image {reference!r}"):
            found = self._api.inspect_image(reference)  # type: ignore[no-untyped-call]
            return cast("dict[str, Any]", found["Config"])

    def tag_again(self, reference: str) -> None:
        """Give an image the tag that it has; see `last_tagged`."""
        repository, tag = split_reference(reference)
        with self._mapped(f"tag image {reference!r}"):
            self._api.tag(reference, repository, tag)

    def last_tagged(self, reference: str) -> datetime | None:
        """Return when the image was last given a tag, where the engine knows."""
        with self._mapped(f"inspect image {reference!r}"):
            found = self._api.inspect_image(reference)  # type: ignore[no-untyped-call]
        try:
            moment = datetime.fromisoformat((found.get("Metadata") or {}).get("LastTagTime", ""))
        except ValueError:
            return None
        return moment if moment.year > 1 else None  # the engine says year 1 where it never was

    def remove_image(self, reference: str) -> None:
        """Remove a tag, or an image by its id; the untagged images below it go too."""
        with self._mapped(f"remove image {reference!r}"):
            self._api.remove_image(reference)

    def pull(self, reference: str, feed: Feed, cancel: threading.Event) -> Interruption:
        """Pull exactly one image; failures of the registry come as an event, or as an error."""
        repository, tag = split_reference(reference)

        def start() -> Iterator[dict[str, Any]]:
            return cast(
                "Iterator[dict[str, Any]]", self._api.pull(repository, tag=tag, stream=True, decode=True)
            )

        return self._follow(f"pull {reference!r}", start, feed, cancel, _PULL_LIMIT_S, _PULL_SILENCE_S)

    def build(
        self,
        context: BytesIO,
        *,
        reference: str,
        arguments: Mapping[str, str],
        labels: Mapping[str, str],
        feed: Feed,
        cancel: threading.Event,
        limit_s: float = BUILD_LIMIT_S,
    ) -> Interruption:
        """Build from a packed context; a failed step comes as an event."""

        def start() -> Iterator[dict[str, Any]]:
            options: dict[str, Any] = {"buildargs": dict(arguments), "labels": dict(labels), "tag": reference}
            return self._api.build(
                fileobj=context, custom_context=True, rm=True, forcerm=True, decode=True, **options
            )

        return self._follow(f"build {reference!r}", start, feed, cancel, limit_s, _STEP_SILENCE_S)

    def import_rootfs(self, rootfs: BufferedReader, *, reference: str, label: str) -> None:
        """Make an image of a tar file."""
        repository, tag = split_reference(reference)
        with self._mapped("import the base image"), self._silence_limit(_IMPORT_LIMIT_S):
            self._api.import_image(rootfs, repository=repository, tag=tag, changes=[f"LABEL {label}"])

    def remove_containers(self, label: str) -> list[str]:
        """Remove all containers with a label, running or not; return their names."""
        with self._mapped("remove containers"):
            found = self._api.containers(all=True, filters={"label": label})
            for container in found:
                with suppress(docker.errors.NotFound):
                    self._api.remove_container(container["Id"], force=True, v=True)
        return [container["Names"][0].lstrip("/") for container in found]

    def wait_removed(self, container: str) -> None:
        """Wait until the engine has removed a container of its own."""
        with suppress(ImageNotFound), self._mapped(f"wait for container {container!r}"):
            self._api.wait(container, timeout=int(_CALL_LIMIT_S), condition="removed")

    @contextmanager
    def files(self, reference: str) -> Iterator[tarfile.TarFile]:
        """Open the image's whole file system as a stream, read from a container that is never started."""
        with self._container(reference, {}) as container, self._mapped(f"read {reference!r}"):
            pieces = self._api.export(container)
            with tarfile.open(fileobj=BufferedReader(_Pieces(pieces)), mode="r|") as tar:
                yield tar

    def run(self, reference: str, command: list[str], *, limit_s: float, **options: Any) -> str:
        """Run a command in a container and return its output.

        Raises:
            EngineTimeout: It has not ended in time.
        """
        with self._container(reference, options, command) as container, self._mapped(f"run {reference!r}"):
            self._api.start(container)
            self._api.wait(container, timeout=int(limit_s))
            return self._api.logs(container, tail=_OUTPUT_LIMIT).decode(errors="replace")

    @contextmanager
    def _container(
        self, reference: str, options: Mapping[str, Any], command: list[str] | None = None
    ) -> Iterator[str]:
        with self._mapped(f"create a container of {reference!r}"):
            host_config = self._api.create_host_config(**options, network_mode="none")
            made = self._api.create_container(
                reference, command or ["true"], host_config=host_config, labels={VERIFY_LABEL: reference}
            )
        try:
            yield made["Id"]
        finally:
            with self._mapped("remove a container"):
                self._api.remove_container(made["Id"], force=True, v=True)

    def _follow(
        self,
        what: str,
        start: Callable[[], Iterator[dict[str, Any]]],
        feed: Feed,
        cancel: threading.Event,
        limit_s: float,
        silence_s: float,
    ) -> Interruption:
        """Feed a stream of events until it ends, or is to end; then hang up, which ends the work in the engine."""
        with self._mapped(what), self._silence_limit(silence_s):
            events = start()
            assert self._api.answer is not None
            stream = CancellableStream(events, self._api.answer)

            def hang_up() -> None:
                with suppress(OSError, AttributeError):  # it has ended by itself just now
                    stream.close()

            with interruptible(hang_up, cancel=cancel, limit_s=limit_s) as interruption:
                try:
                    for event in stream:
                        feed(event)
                except BaseException:
                    hang_up()
                    raise
        if interruption.timed_out:
            msg = f"could not {what} within {limit_s:g} s"
            raise EngineTimeout(msg)
        return interruption

    @contextmanager
    def _silence_limit(self, limit_s: float) -> Iterator[None]:
        self._api.silence_limit_s = limit_s
        try:
            yield
        finally:
            self._api.silence_limit_s = _CALL_LIMIT_S

    @contextmanager
    def _mapped(self, what: str) -> Iterator[None]:
        try:
            yield
        except docker.errors.NotFound as error:
            msg = f"could not {what}: {error.explanation or error}"
            raise ImageNotFound(msg) from error
        except docker.errors.APIError as error:
            msg = f"could not {what}: {error.explanation or error}"
            raise EngineError(msg) from error
        except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
            raise self._too_slow(what) from error
        except (
            docker.errors.DockerException,
            requests.RequestException,
            OSError,
            urllib3.exceptions.HTTPError,
        ) as error:
            if "timed out" in str(error).lower():
                raise self._too_slow(what) from error
            msg = (
                f"could not {what}: no engine answers at {self.address!r} ({error}); "
                "start Docker (scripts/setup does), or set DOCKER_HOST"
            )
            raise EngineUnavailable(msg) from error

    def _too_slow(self, what: str) -> EngineTimeout:
        return EngineTimeout(f"could not {what}: the engine at {self.address!r} did not answer in time")


def _knock(address: str) -> None:
    """Connect to a local engine and hang up: the SDK leaves its socket open when that fails."""
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(_CALL_LIMIT_S)
            door.connect(address.removeprefix("unix://"))


class _Pieces(RawIOBase):
    """An iterator of bytes as a file, for `tarfile`."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = next(self._pieces, b"")
        taken = self._rest[: len(buffer)]
        self._rest = self._rest[len(taken) :]
        buffer[: len(taken)] = taken
        return len(taken)
