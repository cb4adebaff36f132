"""Builds, lists, verifies and removes the images that sandboxes run.

Everything here blocks: call it from a thread. Nothing is ever pruned: what is removed is found by the labels that the
builds put on it.
"""

import builtins
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import engine_address
from aeolus_sandbox.engine.image_bootstrap import bootstrap
from aeolus_sandbox.engine.image_catalog import (
    BUILD_LABEL,
    HASH_LABEL,
    NAME_LABEL,
    REPOSITORY_PREFIX,
    VERIFY_LABEL,
    ImageCatalog,
    Recipe,
    shipped_catalog,
)
from aeolus_sandbox.engine.image_checks import Check, FileInspection, environment_check, reported_checks
from aeolus_sandbox.engine.image_client import BUILD_LIMIT_S, ImageClient
from aeolus_sandbox.engine.image_context import build_arguments, build_context
from aeolus_sandbox.engine.image_log import BuildLog, BuildProgress
from aeolus_sandbox.errors import EngineError, EngineTimeout, EngineUnavailable, ImageBuildFailed

__all__ = ["BuildProgress", "Check", "ImageBuilder", "ImageState"]

_CHECKS_LIMIT_S: Final = 120
_HARDENED: Final[Mapping[str, Any]] = {
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "read_only": True,
    "tmpfs": dict.fromkeys(("/tmp", "/workspace"), "size=64m,mode=0755,uid=10001,gid=10001"),  # noqa: S108
    "mem_limit": "512m",
    "pids_limit": 128,
    "ipc_mode": "private",
    "init": True,
}

Progress = Callable[[BuildProgress], None]


@dataclass(frozen=True, slots=True)
class ImageState:
    """An image that there is, or should be."""

    name: str
    reference: str
    state: Literal["current", "stale", "missing"]
    """`stale`: made from other files than the present ones."""
    size_bytes: int = 0
    created: datetime | None = None
    id: str = ""


class ImageBuilder:
    """Builds images and looks after them; a context manager, for one thread."""

    def __init__(self, docker_host: str | None = None, *, catalog: ImageCatalog | None = None) -> None:
        self._asked_address = docker_host
        self._catalog = catalog or shipped_catalog()
        self._open_client: ImageClient | None = None

    def __enter__(self) -> Self:
        self._open_client = ImageClient(engine_address(self._asked_address))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()

    def build(
        self,
        name: str,
        *,
        ca_bundle: Path | None = None,
        progress: Progress | None = None,
        rebuild: bool = False,
        cancel: threading.Event | None = None,
    ) -> ImageState:
        """Build the image, and first what it is built on; an image that is current is returned at once.

        Args:
            name: Which image.
            ca_bundle: Certificates that the build needs to reach its index; they do not stay in the image.
            progress: Is called with each thing that the build says.
            rebuild: Run the build although the image is current; steps whose inputs are the same are taken from the
                engine's cache (`remove` empties it).
            cancel: Set it from another thread to stop the build.

        Raises:
            ConfigurationError: There is no such image.
            ImageBuildFailed: A step failed, or the build was cancelled. No image has the tag then.
            EngineUnavailable: No engine answers.
            EngineTimeout: It took too long.
        """
        certificates = ca_bundle.read_bytes() if ca_bundle else b""
        recipe = self._catalog.recipe(name)
        self._build_all(recipe.lineage, certificates, progress, cancel or threading.Event(), rebuild=rebuild)
        return self._states(recipe)[0]

    def list(self) -> builtins.list[ImageState]:
        """List the images: what is there, current or stale, and what is missing.

        Raises:
            EngineError: The engine does not answer, or refuses.
        """
        return [state for name in self._catalog.names() for state in self._states(self._catalog.recipe(name))]

    def verify(self, name: str) -> builtins.list[Check]:
        """Look at every file of the image from outside, and run its own checks in a hardened container.

        Raises:
            ImageNotFound: The image has not been built from the present files.
            EngineError: The engine does not answer, or refuses.
        """
        recipe = self._catalog.recipe(name)
        return self._verified(recipe.reference, recipe)

    def _verified(self, reference: str, recipe: Recipe) -> builtins.list[Check]:
        config = self._client.config(reference)
        is_base = any(self._catalog.built_on(other) == recipe.name for other in self._catalog.names())
        with self._client.files(reference) as tar:
            checks = FileInspection(others_build_on_it=is_base).read(tar)
        return [environment_check(config["Env"] or ()), *checks, *self._run_checks(reference, recipe)]

    def remove(self, name: str, *, stale_only: bool = False) -> builtins.list[str]:
        """Remove the image's builds and what the engine cached of them; return the references that went.

        Raises:
            EngineError: A container uses one of them, or the engine does not answer.
        """
        current = f":{self._catalog.recipe(name).content_hash}"
        label = f"{BUILD_LABEL}={name}"
        tags = [
            tag for image in self._client.images(label=label) for tag in _our_tags(image, name, "bootstrap")
        ]
        gone = [tag for tag in tags if not (stale_only and tag.endswith(current))]
        for tag in gone:
            self._client.remove_image(tag)
        if not stale_only:
            self._remove_unfinished(name)
        return gone

    def remove_everything(self) -> builtins.list[str]:
        """Remove every container and every image of this library, in use or not; return what went.

        Raises:
            EngineError: The engine does not answer, or refuses.
        """
        gone = [
            f"container {container}"
            for label in (OWNER_LABEL, VERIFY_LABEL)
            for container in self._client.remove_containers(label)
        ]
        # What is built on another image first.
        names = sorted(
            self._catalog.names(), key=lambda name: len(self._catalog.recipe(name).lineage), reverse=True
        )
        return gone + [f"image {tag}" for name in names for tag in self.remove(name)]

    def pull(
        self, reference: str, *, progress: Progress | None = None, cancel: threading.Event | None = None
    ) -> None:
        """Pull exactly one image: no tag asks for `latest`.

        Raises:
            ConfigurationError: It is not a reference.
            EngineError: The registry does not answer, or does not have it.
        """
        log = BuildLog(reference, progress)
        interruption = self._client.pull(reference, log.feed, cancel or threading.Event())
        if interruption or log.error:
            msg = f"could not pull {reference!r}: {log.error or 'it was cancelled'}"
            raise EngineError(msg)

    @property
    def _client(self) -> ImageClient:
        if self._open_client is None:
            msg = "use the image builder as a context manager: with ImageBuilder() as builder"
            raise RuntimeError(msg)
        return self._open_client

    def _states(self, recipe: Recipe) -> builtins.list[ImageState]:
        name, wanted = recipe.name, recipe.reference
        # Both labels: an unfinished image has inherited the name of what it is built on.
        found = self._client.images(label=[f"{NAME_LABEL}={name}", f"{BUILD_LABEL}={name}"])
        states = [
            ImageState(
                name=name,
                reference=tag,
                state="current" if tag == wanted else "stale",
                size_bytes=image["Size"],
                created=datetime.fromtimestamp(image["Created"], UTC),
                id=image["Id"],
            )
            for image in found
            for tag in _our_tags(image, name)
        ]
        return sorted(states, key=lambda state: state.state) or [ImageState(name, wanted, "missing")]

    def _build_all(
        self,
        recipes: Sequence[Recipe],
        certificates: bytes,
        progress: Progress | None,
        cancel: threading.Event,
        *,
        rebuild: bool = False,
    ) -> None:
        for each in recipes:
            if rebuild or self._states(each)[0].state != "current":
                self._build_one(each, BuildLog(each.name, progress), certificates, cancel)

    def _build_one(
        self,
        recipe: Recipe,
        log: BuildLog,
        certificates: bytes,
        cancel: threading.Event,
        *,
        labels: Mapping[str, str] | None = None,
        limit_s: float = BUILD_LIMIT_S,
    ) -> None:
        label = f"{BUILD_LABEL}={log.image}"
        before = {image["Id"] for image in self._client.images(label=label, intermediate=True)}
        replaced = self._states(recipe)[0]
        rootfs, pulled = self._rootfs(recipe, log, cancel)
        try:
            self._run_build(
                recipe,
                log,
                cancel,
                context=build_context(recipe, certificates),
                arguments=build_arguments(recipe, rootfs),
                labels={**(labels or {}), NAME_LABEL: recipe.name, HASH_LABEL: recipe.content_hash},
                limit_s=limit_s,
            )
        except BaseException:
            if not log.error:  # cut short: a failed step's earlier steps stay, they are the next try's cache
                self._clear_away(log, before)
            raise
        finally:
            if pulled:  # the tag was not here before; its layers stay below ours
                self._remove_if_free(rootfs)
        if replaced.state == "current" and replaced.id != log.image_id:
            self._remove_if_free(replaced.id)

    def _run_build(
        self,
        recipe: Recipe,
        log: BuildLog,
        cancel: threading.Event,
        **what: Any,
    ) -> None:
        try:
            interruption = self._client.build(
                reference=recipe.reference, feed=log.feed, cancel=cancel, **what
            )
        except EngineTimeout as error:
            raise EngineTimeout(log.failure(str(error))) from error
        if interruption.cancelled:
            raise ImageBuildFailed(log.failure("it was cancelled"))
        # The id has a field of its own; any step can print "Successfully built".
        if log.error or not log.image_id:
            raise ImageBuildFailed(log.failure(log.error or "it ended without an image"))

    def _rootfs(self, recipe: Recipe, log: BuildLog, cancel: threading.Event) -> tuple[str, bool]:
        """Get the distribution's image; say its reference, and whether it was not there before."""
        upstream = recipe.upstream
        if not upstream:
            return "", False
        was_there = self._exists(upstream)
        try:
            self.pull(upstream, progress=log.progress, cancel=cancel)
        except EngineUnavailable:
            raise
        except EngineError as error:
            instead = "the one that is here" if was_there else "a Debian mirror"
            log.say("pull", f"{error}; using {instead} instead")
        else:
            return upstream, not was_there
        return (upstream if was_there else self._bootstrapped(recipe, log, cancel)), False

    def _bootstrapped(self, recipe: Recipe, log: BuildLog, cancel: threading.Event) -> str:
        reference = f"{REPOSITORY_PREFIX}bootstrap:{recipe.content_hash}"
        if not self._exists(reference):
            script = self._catalog.folder / log.image / "bootstrap"
            with tempfile.TemporaryDirectory(prefix="aeolus-") as folder:
                # A file, not a pipe: what a failed bootstrap has written so far must not become an image.
                target = Path(folder, "rootfs.tar")
                bootstrap(script, target, cancel=cancel, say=lambda text: log.say("bootstrap", text))
                with target.open("rb") as rootfs:
                    self._client.import_rootfs(
                        rootfs, reference=reference, label=f"{BUILD_LABEL}={log.image}"
                    )
        return reference

    def _remove_unfinished(self, name: str) -> None:
        while heads := self._unfinished(name):
            for image in heads:
                self._client.remove_image(image["Id"])

    def _unfinished(self, name: str, *labels: str) -> builtins.list[dict[str, Any]]:
        """List the untagged last images of the image's builds.

        A finished image is not among them: an untagged one that has its labels is likely somebody's own, built on it.
        """
        found = self._client.images(label=[f"{BUILD_LABEL}={name}", *labels], dangling=True)
        return [
            image
            for image in found
            if image["Labels"].get(NAME_LABEL) != name or HASH_LABEL not in image["Labels"]
        ]

    def _exists(self, reference: str) -> bool:
        return bool(self._client.images(reference=reference))

    def _remove_if_free(self, reference: str) -> None:
        with suppress(EngineError):  # a container still uses it
            self._client.remove_image(reference)

    def _clear_away(self, log: BuildLog, before: Collection[str], *labels: str) -> None:
        """Remove the unfinished images that a build has made so far, or those that have more labels."""
        with suppress(EngineError):
            for container in log.containers:  # the engine ends the step itself once nobody listens
                self._client.wait_removed(container)
            while True:
                ids = [image["Id"] for image in self._unfinished(log.image, *labels)]
                new = [image for image in ids if image not in before and log.made(image)]
                for image in new:
                    self._client.remove_image(image)
                if not new:
                    return

    def _run_checks(self, reference: str, recipe: Recipe) -> builtins.list[Check]:
        script = "".join(each.files.get("verify", b"").decode() for each in recipe.lineage)
        command = ["timeout", str(_CHECKS_LIMIT_S), "sh", "-c", f"{script}\necho ok ran all of its checks"]
        try:
            said = self._client.run(reference, command, limit_s=_CHECKS_LIMIT_S + 10, **_HARDENED)
        except EngineTimeout as error:
            return [Check("ran all of its checks", ok=False, detail=str(error))]
        checks = reported_checks(said)
        if not any(check.name == "ran all of its checks" for check in checks):
            checks.append(Check("ran all of its checks", ok=False, detail=said[-200:]))
        return checks


def _our_tags(image: Mapping[str, Any], *names: str) -> list[str]:
    """Pick the tags that builds gave; an image that somebody built on ours has our labels, but not our tags."""
    ours = tuple(f"{REPOSITORY_PREFIX}{name}:" for name in names)
    return [tag for tag in image["RepoTags"] or () if tag.startswith(ours)]
