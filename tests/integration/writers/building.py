"""The image with nginx and logrotate, which stands on our own base: built once, and removed by `scripts/clean`."""

from pathlib import Path
from typing import Final

from aeolus_sandbox.engine.docker import engine_address
from aeolus_sandbox.engine.image_catalog import BUILD_LABEL, ImageCatalog
from aeolus_sandbox.engine.image_client import ImageClient
from aeolus_sandbox.engine.image_context import certificates_of_environment
from aeolus_sandbox.engine.images import ImageBuilder
from aeolus_sandbox.resources import guest_folder

NAME: Final = "writers"
_CATALOG: Final = ImageCatalog(Path(__file__).parent / "images", guest_folder())


def build() -> str:
    """Return the reference of the image, which is built where there is none of the present files."""
    with ImageBuilder(catalog=_CATALOG) as builder:
        return builder.build(NAME, ca_bundle=certificates_of_environment()).reference


def remove() -> list[str]:
    """Remove the image and the containers that were made of it; return what went."""
    client = ImageClient(engine_address())
    try:
        # A container has the labels of its image.
        containers = client.remove_containers(f"{BUILD_LABEL}={NAME}")
    finally:
        client.close()
    with ImageBuilder(catalog=_CATALOG) as builder:
        return [
            *(f"container {name}" for name in containers),
            *(f"image {tag}" for tag in builder.remove(NAME)),
        ]
