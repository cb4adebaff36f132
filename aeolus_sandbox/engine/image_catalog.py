"""Which images there are, what they are made of, and the reference that says so.

A reference ends in a hash of all that went into the image: its folder, the folders of the images that it is built
on, and the guest's code where the image holds it. An image that was made of something else has another tag, so that
a stale image is noticed before anything runs in it.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.resources import guest_folder, shipped_folder

IMAGE_NAMES: Final = ("base", "bash", "deno", "kernel", "log-tailer", "python", "r", "shell", "wasm")
"""The images that ship with the package."""
NAME_LABEL: Final = "aeolus.image"
"""Label of a finished image: its name."""
HASH_LABEL: Final = "aeolus.image.hash"
"""Label of a finished image: the hash of what went into it."""
BUILD_LABEL: Final = "aeolus.build"
"""Label of every image that a build makes, finished or not: whose build it was."""
VERIFY_LABEL: Final = "aeolus.verify"
"""Label of the containers that look at an image: its reference."""
REPOSITORY_PREFIX: Final = "aeolus/"
HASH_CHARACTERS: Final = 12

_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_BUILT_ON = re.compile(r"^ARG BASE=(\S+)$", re.MULTILINE)
_UPSTREAM = re.compile(r"^ARG ROOTFS=(\S+)$", re.MULTILINE)
_INCLUDE = re.compile(r"^# include: ([a-z-]+)$", re.MULTILINE)
_HOLDS_GUEST = re.compile(r"^COPY guest/ ", re.MULTILINE)
# https://github.com/distribution/reference: [host[:port]/]path[:tag][@digest]
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REPOSITORY = rf"(?:[a-z0-9][a-z0-9.-]*:[0-9]+/)?{_COMPONENT}(?:/{_COMPONENT})*"
_REFERENCE = re.compile(
    rf"(?P<repository>{_REPOSITORY})(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>[a-z0-9]+:[0-9a-f]{{32,}}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class ImageCatalog:
    """The images that a folder holds, a sub-folder with a `Dockerfile` each.

    A Dockerfile says itself what it needs: `ARG BASE=name` that it is built on another image of the folder,
    `ARG ROOTFS=reference` that it starts from a distribution's image (or from what its `bootstrap` script makes),
    `# include: name` that the folder `shared/name` stands there, its Dockerfile in the text and its files in the build
    context, and `COPY guest/ ...` that it holds the guest's code.
    """

    folder: Path
    guest: Path

    def names(self) -> tuple[str, ...]:
        """List the images, by name."""
        found = (path.parent.name for path in self.folder.glob("*/Dockerfile"))
        return tuple(sorted(name for name in found if _NAME.fullmatch(name)))

    def dockerfile(self, name: str) -> str:
        """Return the text of the image's Dockerfile.

        Raises:
            ConfigurationError: There is no such image.
        """
        if name not in self.names():
            msg = f"no image {name!r}: there are {', '.join(self.names())} (names are lower-case)"
            raise ConfigurationError(msg)
        text = (self.folder / name / "Dockerfile").read_text(encoding="utf-8")
        return _INCLUDE.sub(lambda match: self._shared(match[1])["Dockerfile"].decode().rstrip("\n"), text)

    def built_on(self, name: str) -> str | None:
        """Name the image that this one is built on."""
        match = _BUILT_ON.search(self.dockerfile(name))
        return match[1] if match else None

    def recipe(self, name: str) -> "Recipe":
        """Read all that the image is made of, once: what is built is what the hash says.

        Raises:
            ConfigurationError: There is no such image.
        """
        parent = self.built_on(name)
        files = dict(files_below(self.folder / name))
        for fragment in _INCLUDE.findall(files["Dockerfile"].decode()):
            files = self._shared(fragment) | files
        dockerfile = self.dockerfile(name)
        files["Dockerfile"] = dockerfile.encode()
        if _HOLDS_GUEST.search(dockerfile):
            files.update(
                {f"guest/{path}": data for path, data in files_below(self.guest) if path.endswith(".py")}
            )
        return Recipe(name, self.recipe(parent) if parent else None, files)

    def reference(self, name: str) -> str:
        """Return the reference of the image as it must be now."""
        return self.recipe(name).reference

    def _shared(self, name: str) -> dict[str, bytes]:
        """Return the files of what several images share."""
        return dict(files_below(self.folder / "shared" / name))


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that one image is made of."""

    name: str
    base: "Recipe | None"
    files: Mapping[str, bytes]
    """By path in the build context."""

    @property
    def content_hash(self) -> str:
        """Hash of contents and paths, and neither of times nor of places."""
        digest = hashlib.sha256(f"{self.base.content_hash if self.base else ''}\n".encode())
        for path, data in sorted(self.files.items()):
            digest.update(f"{path}\0{len(data)}\0".encode())
            digest.update(data)
        return digest.hexdigest()[:HASH_CHARACTERS]

    @property
    def reference(self) -> str:
        """The reference of an image made of this."""
        return f"{REPOSITORY_PREFIX}{self.name}:{self.content_hash}"

    @property
    def lineage(self) -> "tuple[Recipe, ...]":
        """This and all that it is built on, the first to build first."""
        return (*(self.base.lineage if self.base else ()), self)

    @property
    def dockerfile(self) -> str:
        """The Dockerfile's text."""
        return self.files["Dockerfile"].decode()

    @property
    def upstream(self) -> str | None:
        """The distribution's image that this one starts from."""
        match = _UPSTREAM.search(self.dockerfile)
        return match[1] if match else None


def shipped_catalog() -> ImageCatalog:
    """Return the catalog of the images that ship with the package."""
    return ImageCatalog(shipped_folder("images"), guest_folder())


@cache
def image_reference(name: str) -> str:
    """Return the reference of a shipped image, such as `aeolus/python:0123456789ab`.

    Raises:
        ConfigurationError: There is no such image.
    """
    return shipped_catalog().reference(name)


def resolve_image(name_or_reference: str) -> str:
    """Turn the name of a shipped image into its reference; a reference stays what it is, with its tag said.

    Raises:
        ConfigurationError: It is neither.
    """
    if name_or_reference in IMAGE_NAMES:
        return image_reference(name_or_reference)
    repository, tag = split_reference(name_or_reference)
    return f"{name_or_reference}:{tag}" if name_or_reference == repository else name_or_reference


def split_reference(reference: str) -> tuple[str, str]:
    """Split a reference into repository and tag or digest; no tag means `latest`, never all of them.

    Raises:
        ConfigurationError: It is not an image reference.
    """
    match = _REFERENCE.fullmatch(reference)
    if not match:
        msg = (
            f"{reference!r} is not an image: expected one of {', '.join(IMAGE_NAMES)}, or a reference "
            "such as 'debian:bookworm-slim' (lower-case, no spaces)"
        )
        raise ConfigurationError(msg)
    # A digest says more than a tag beside it; the engine takes one of the two.
    return match["repository"], match["digest"] or match["tag"] or "latest"


def files_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Read the files of a folder, each with its path in it."""
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix(), path.read_bytes()
