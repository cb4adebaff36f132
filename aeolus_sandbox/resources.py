"""Where the files are that ship beside the package: image folders and seccomp profiles."""

from pathlib import Path
from typing import Literal

from aeolus_sandbox.errors import ConfigurationError

PACKAGE = Path(__file__).resolve().parent


def shipped_folder(name: Literal["images", "seccomp"]) -> Path:
    """Return the folder of that name, from the installed wheel or from the checkout that the package runs from.

    Raises:
        ConfigurationError: The folder is in neither.
    """
    checkout = PACKAGE.parent
    candidates = [PACKAGE / "_shipped" / name]
    if (checkout / "pyproject.toml").is_file():  # else it is site-packages, where `images` is somebody else's
        candidates.append(checkout / name)
    return _first_folder(candidates, name)


def guest_folder() -> Path:
    """Return the folder of the code that is copied into images.

    Raises:
        ConfigurationError: The package is not complete.
    """
    return _first_folder([PACKAGE / "guest"], "guest")


def _first_folder(candidates: list[Path], name: str) -> Path:
    for folder in candidates:
        if folder.is_dir():
            return folder
    looked = ", ".join(repr(str(folder)) for folder in candidates)
    msg = f"no folder {name!r} is shipped with this installation (looked for {looked}): install the package again"
    raise ConfigurationError(msg)
