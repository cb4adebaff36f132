"""Derived images: a language's image with packages on top, made once for each set of packages.

The build has network, the sandboxes that run the image have none. Everything here blocks: call it from a thread.
"""

import builtins
import fcntl
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from aeolus_sandbox.engine.image_catalog import (
    HASH_LABEL,
    NAME_LABEL,
    REPOSITORY_PREFIX,
    ImageCatalog,
    Recipe,
    files_below,
)
from aeolus_sandbox.engine.image_checks import Check
from aeolus_sandbox.engine.image_context import certificates_of_environment
from aeolus_sandbox.engine.image_log import BuildLog, BuildProgress, without_addresses
from aeolus_sandbox.engine.images import ImageBuilder, Progress
from aeolus_sandbox.engine.packages import NAME_SUFFIX, derived_name, derives_from, parse_packages
from aeolus_sandbox.errors import (
    EngineError,
    EngineTimeout,
    EngineUnavailable,
    ImageBuildFailed,
    ImageNotFound,
)

PACKAGES_LABEL: Final = "aeolus.packages"
"""Label of a derived image: what was asked for, separated by spaces."""
BUILT_ON_LABEL: Final = "aeolus.packages.image"
"""Label of a derived image: the reference of the image below it."""
BUILD_LIMIT_S: Final = 900.0
"""How long one set of packages may take, waiting for another build of it included."""
_UNFINISHED: Final = "unfinished"
"""In the place of the packages, in the label of the stages of a build that hold some."""
_LOOK_EVERY_S: Final = 0.1
_NEWS_CHARACTERS: Final = 200
_NEWSWORTHY: Final = (
    "Collecting ",
    "Download ",
    "Downloading ",
    "Installing ",
    "Successfully installed ",
    "Unpacking ",
    "ERROR: ",
)
_SAID_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True)
class PackageImage:
    """A derived image that there is."""

    reference: str
    image: str
    """Name of the image below it."""
    packages: tuple[str, ...]
    is_current: bool
    """Whether the image below it is the present one."""
    size_bytes: int
    """With the image below it, which is stored once."""
    created: datetime
    last_used: datetime
    """When a call last asked for it."""


def package_recipe(catalog: ImageCatalog, image: str, packages: tuple[str, ...]) -> Recipe:
    """Read all that the derived image is made of; the packages are a file of it.

    Raises:
        ConfigurationError: One is not a package's name, or the image takes none.
    """
    files = dict(files_below(catalog.folder / "packages" / image))
    files["packages.txt"] = "".join(f"{package}\n" for package in parse_packages(image, packages)).encode()
    return Recipe(derived_name(image), catalog.recipe(image), files)


def news_of(progress: BuildProgress) -> str | None:
    """Return what a build says in words for whoever waits for it; None: nothing for them."""
    text = _plain(progress.text)[:_NEWS_CHARACTERS]
    if not progress.image.endswith(NAME_SUFFIX):
        return f"building the image {progress.image} first" if text.startswith("Step ") else None
    return text if text.startswith(_NEWSWORTHY) else None


def _plain(line: str) -> str:
    # Boundary: a build step prints what the packages' authors and the index like.
    return "".join(each if each.isprintable() else " " for each in without_addresses(line)).strip()


class PackageImageBuilder(ImageBuilder):
    """Makes, finds and removes derived images, beside the shipped ones; a context manager, for one thread."""

    def obtain(
        self,
        image: str,
        packages: tuple[str, ...],
        *,
        locks: Path,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
        limit_s: float = BUILD_LIMIT_S,
    ) -> str:
        """Return the reference of the image with these packages; it is built where there is none yet.

        Args:
            image: Name of a shipped image.
            packages: What to add to it; see `parse_packages`.
            locks: A folder for the files by which processes wait for each other's build; made when it is needed.
            progress: Is called with each thing that the build says.
            cancel: Set it from another thread to stop the build.
            limit_s: How long it may take, in seconds.

        Raises:
            ConfigurationError: One is not a package's name, or the image takes none.
            ImageBuildFailed: They cannot be installed, with what the installer says; or the build was cancelled.
            EngineUnavailable: No engine answers.
            EngineTimeout: It took too long.
        """
        recipe = package_recipe(self._catalog, image, packages)
        if not self._use(recipe):
            deadline = time.monotonic() + limit_s
            cancel = cancel or threading.Event()
            with only_builder(locks, recipe.name, cancel, limit_s=limit_s):
                if not self._use(recipe):  # somebody else has built it meanwhile
                    bundle = certificates_of_environment()
                    certificates = bundle.read_bytes() if bundle else b""
                    self._build_all(recipe.lineage[:-1], certificates, progress, cancel)
                    self._install(recipe, BuildLog(recipe.name, progress), certificates, cancel, deadline)
        return recipe.reference

    def find(self, image: str, packages: tuple[str, ...]) -> str | None:
        """Return the reference of the image with these packages where there is one, and note that it is used.

        Raises:
            ConfigurationError: One is not a package's name, or the image takes none.
            EngineError: The engine does not answer, or refuses.
        """
        recipe = package_recipe(self._catalog, image, packages)
        return recipe.reference if self._use(recipe) else None

    def derived(self, image: str | None = None) -> builtins.list[PackageImage]:
        """List the derived images, or those of one shipped image.

        Raises:
            EngineError: The engine does not answer, or refuses.
        """
        return sorted(
            (
                self._described(found, tag)
                for found in self._client.images(label=[PACKAGES_LABEL, BUILT_ON_LABEL, HASH_LABEL])
                for tag in found["RepoTags"] or ()
                if tag.startswith(f"{REPOSITORY_PREFIX}{found['Labels'].get(NAME_LABEL)}:")
                and (image is None or derives_from(tag, image))
            ),
            key=lambda each: (each.image, each.packages, each.reference),
        )

    def verify_packages(self, derived: PackageImage) -> builtins.list[Check]:
        """Check a derived image as `verify` does a shipped one, with the present checks.

        Raises:
            ImageNotFound: It is gone.
            EngineError: The engine does not answer, or refuses.
        """
        return self._verified(
            derived.reference, package_recipe(self._catalog, derived.image, derived.packages)
        )

    def unused(self, *, for_s: float) -> builtins.list[PackageImage]:
        """List the derived images that nobody has asked for in this time; never a shipped one.

        Raises:
            EngineError: The engine does not answer, or refuses.
        """
        now = datetime.now(UTC)
        return [each for each in self.derived() if (now - each.last_used).total_seconds() >= for_s]

    def discard(self, derived: PackageImage) -> bool:
        """Remove a derived image unless a container uses it; tell whether it is gone.

        Raises:
            EngineUnavailable: No engine answers.
        """
        try:
            self._client.remove_image(derived.reference)
        except EngineUnavailable:
            raise
        except EngineError:
            return not self._exists(derived.reference)
        return True

    def remove(self, name: str, *, stale_only: bool = False) -> builtins.list[str]:
        """Remove the image's builds and what is derived of them; see `ImageBuilder.remove`."""
        gone = [each.reference for each in self.derived(name) if not (stale_only and each.is_current)]
        for reference in gone:
            self._client.remove_image(reference)
        if not stale_only:
            self._remove_unfinished(derived_name(name))
        return gone + super().remove(name, stale_only=stale_only)

    def _use(self, recipe: Recipe) -> bool:
        """Tell whether the image is there, and note that it is used: the engine keeps the time of its last tag."""
        try:
            self._client.tag_again(recipe.reference)
        except ImageNotFound:
            return False
        return True

    def _install(
        self, recipe: Recipe, log: BuildLog, certificates: bytes, cancel: threading.Event, deadline: float
    ) -> None:
        packages = recipe.files["packages.txt"].decode().split()
        assert recipe.base is not None
        labels = {PACKAGES_LABEL: " ".join(packages), BUILT_ON_LABEL: recipe.base.reference}
        try:
            self._build_one(
                recipe,
                log,
                certificates,
                cancel,
                labels=labels,
                limit_s=max(1.0, deadline - time.monotonic()),
            )
        except ImageBuildFailed as error:
            if cancel.is_set():
                raise
            said = "\n".join(map(_plain, log.last_lines))[-_SAID_CHARACTERS:]
            msg = f"the packages {', '.join(packages)} could not be added to the image {recipe.base.name!r}: {said or log.error}"
            raise ImageBuildFailed(msg) from error
        finally:
            # What all sets of packages share stays, and is the next one's cache.
            self._clear_away(log, (), f"{PACKAGES_LABEL}={_UNFINISHED}")

    def _described(self, found: Mapping[str, Any], tag: str) -> PackageImage:
        labels = found["Labels"]
        image = labels[NAME_LABEL].removesuffix(NAME_SUFFIX)
        created = datetime.fromtimestamp(found["Created"], UTC)
        return PackageImage(
            reference=tag,
            image=image,
            packages=tuple(labels[PACKAGES_LABEL].split()),
            is_current=image in self._catalog.names()
            and labels[BUILT_ON_LABEL] == self._catalog.reference(image),
            size_bytes=found["Size"],
            created=created,
            last_used=max(created, self._last_tagged(tag) or created),
        )

    def _last_tagged(self, tag: str) -> datetime | None:
        with suppress(ImageNotFound):  # somebody has removed it just now
            return self._client.last_tagged(tag)
        return None


@contextmanager
def only_builder(folder: Path, name: str, cancel: threading.Event, *, limit_s: float) -> Iterator[None]:
    """Wait until nobody else of this user adds packages to an image; a process that dies lets go by that.

    One at a time: two builds share their first steps, and the one that clears away would take them from the other.

    Raises:
        ImageBuildFailed: It was cancelled.
        EngineTimeout: The other one has not ended in time.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + limit_s
    try:
        while not _locked(descriptor):
            if cancel.wait(_LOOK_EVERY_S):
                msg = f"the build of an image {name!r} failed: it was cancelled"
                raise ImageBuildFailed(msg)
            if time.monotonic() > deadline:
                msg = f"another process builds an image {name!r} and has not ended in time"
                raise EngineTimeout(msg)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
