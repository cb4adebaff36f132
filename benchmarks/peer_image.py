"""The image that all peers run on: built once by `python -m benchmarks.peer_image`, and named by what it is made of."""

import subprocess
from pathlib import Path
from typing import Final

from aeolus_sandbox.engine.image_catalog import Recipe, shipped_catalog
from aeolus_sandbox.engine.image_context import build_arguments, build_context, certificates_of_environment
from aeolus_sandbox.engine.images import ImageBuilder

_DOCKERFILE: Final = Path(__file__).with_name("peer_workers") / "image" / "Dockerfile"
_REQUIREMENTS: Final = Path(__file__).parents[1] / "requirements" / "peers" / "image.txt"
_BASE: Final = "kernel"
_LABEL: Final = "aeolus.image=peers"
_BUILD_LIMIT_S: Final = 900
_CALL_LIMIT_S: Final = 60


def recipe() -> Recipe:
    """Return all that the image is made of."""
    files = {"Dockerfile": _DOCKERFILE.read_bytes(), "requirements.txt": _REQUIREMENTS.read_bytes()}
    return Recipe("peers", shipped_catalog().recipe(_BASE), files)


def reference() -> str:
    """Return the image's reference; its program is a shell that waits."""
    return recipe().reference


def gateway_reference() -> str:
    """Return the reference of the same image with a kernel gateway as its program."""
    return f"{reference().replace(':', '-gateway:')}"


def build() -> None:
    """Build both, and first what they are built on; what is there already takes seconds.

    Raises:
        subprocess.CalledProcessError: A step failed; what it said stands on the screen.
    """
    bundle = certificates_of_environment()
    certificates = bundle.read_bytes() if bundle else b""
    with ImageBuilder() as builder:
        builder.build(_BASE, ca_bundle=bundle)
    made_of = recipe()
    given = [f"--build-arg={key}={value}" for key, value in build_arguments(made_of, "").items()]
    context = build_context(made_of, certificates).getvalue()
    for target, name in (("peers", reference()), ("gateway", gateway_reference())):
        command = [
            "docker",
            "build",
            "--quiet",
            f"--target={target}",
            f"--tag={name}",
            f"--label={_LABEL}",
            *given,
            "-",
        ]
        subprocess.run(command, input=context, check=True, timeout=_BUILD_LIMIT_S)
        _remove_others(name)


def remove() -> list[str]:
    """Remove all builds of both, but for those that a container uses, and return their names."""
    return _remove(_there())


def _remove_others(reference: str) -> None:
    """Remove the builds from other files than the present ones, but for those that a container uses."""
    repository, _, _ = reference.partition(":")
    _remove([name for name in _there() if name.startswith(f"{repository}:") and name != reference])


def _there() -> list[str]:
    listing = ["docker", "images", f"--filter=label={_LABEL}", "--format={{.Repository}}:{{.Tag}}"]
    there = subprocess.run(listing, capture_output=True, text=True, check=True, timeout=_CALL_LIMIT_S)
    return sorted(there.stdout.split())


def _remove(names: list[str]) -> list[str]:
    if names:
        subprocess.run(["docker", "rmi", *names], check=False, capture_output=True, timeout=_CALL_LIMIT_S)
    return names


if __name__ == "__main__":
    build()
