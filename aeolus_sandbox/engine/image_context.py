"""What an image build is given: the packed build context, and what it is told of this machine."""

import os
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

from aeolus_sandbox.engine.image_catalog import BUILD_LABEL, Recipe

_INDEX_ARGUMENTS: Final = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "NPM_CONFIG_REGISTRY")
_PROXY_ARGUMENTS: Final = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_BUNDLE_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def certificates_of_environment() -> Path | None:
    """Return the file of certificates that this machine's programs are told to use, where there is one."""
    candidates = (Path(os.environ[name]) for name in _BUNDLE_VARIABLES if os.environ.get(name))
    return next((path for path in candidates if path.is_file()), None)


def build_context(recipe: Recipe, certificates: bytes) -> BytesIO:
    """Pack the build context; every stage gets a label, so that whatever is left of it can be found."""
    lines = []
    for line in recipe.dockerfile.splitlines():
        lines.append(line)
        if line.upper().startswith("FROM "):
            lines.append(f"LABEL {BUILD_LABEL}={recipe.name}")
    files = {**recipe.files, "build-ca.crt": certificates, "Dockerfile": "\n".join([*lines, ""]).encode()}
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, data in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, BytesIO(data))
    packed.seek(0)
    return packed


def build_arguments(recipe: Recipe, rootfs: str) -> dict[str, str]:
    """Return what the build is told of this machine: proxy and index, and what the image starts from."""
    arguments = {key: os.environ[key] for key in _PROXY_ARGUMENTS if key in os.environ}
    for key in _INDEX_ARGUMENTS:
        # The build has none of this machine's files.
        urls = [url for url in os.environ.get(key, "").split() if not url.startswith("file:")]
        if urls and f"\nARG {key}\n" in recipe.dockerfile:
            arguments[key] = " ".join(urls)
    if recipe.base:
        arguments["BASE"] = recipe.base.reference
    if recipe.base and recipe.base.base and "\nARG APT_BASE=" in recipe.dockerfile:
        arguments["APT_BASE"] = recipe.base.base.reference
    if rootfs:
        arguments["ROOTFS"] = rootfs
    return arguments
