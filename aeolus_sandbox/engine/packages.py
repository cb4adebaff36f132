"""Which packages a call may ask for, by language: names and versions, and nothing that an installer takes for more.

What passes here is written into a file of a build context, one a line. It never stands on a command line.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from aeolus_sandbox.engine.image_catalog import REPOSITORY_PREFIX
from aeolus_sandbox.errors import ConfigurationError

MAX_PACKAGES: Final = 50
"""How many packages one call may ask for; what they need themselves does not count."""
MAX_PACKAGE_CHARACTERS: Final = 200
NAME_SUFFIX: Final = "-packages"

# https://packaging.python.org/en/latest/specifications/dependency-specifiers: without URL, marker and `===`
_PYTHON_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_PYTHON: Final = re.compile(
    rf"{_PYTHON_NAME}(?: *\[(?: *{_PYTHON_NAME}(?: *, *{_PYTHON_NAME})*)? *\])?"
    r"(?: *(?:==|!=|~=|<=|>=|<|>) *[0-9][0-9A-Za-z.+!*_-]* *(?:,(?= *[=!~<>])|$))*"
)
# npm's documentation of package.json, `name`; with a version, a range of one part, or a tag
_NPM_PART: Final = r"[a-z0-9][a-z0-9._-]*"
_NPM: Final = re.compile(
    rf"(?P<name>(?:@{_NPM_PART}/)?{_NPM_PART})(?:@(?P<version>(?:[\^~]|[<>]=?)?[0-9][0-9A-Za-z.+-]*|[a-z][a-z0-9-]*))?"
)
# "Writing R Extensions", section "The DESCRIPTION file"
_R: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9.]*[A-Za-z0-9])?")


def derived_name(image: str) -> str:
    """Return the name of the images that have packages on top of this one."""
    return f"{image}{NAME_SUFFIX}"


def derives_from(reference: str, image: str) -> bool:
    """Tell whether a reference is that of the image with packages on top."""
    return reference.startswith(f"{REPOSITORY_PREFIX}{derived_name(image)}:")


def takes_packages(image: str) -> bool:
    """Tell whether packages can be put on top of the image."""
    return image in _SPELLINGS


def parse_packages(image: str, packages: Iterable[str]) -> tuple[str, ...]:
    """Return the packages in one spelling, sorted, each once.

    Args:
        image: The image that they are to be added to: its language says what a name looks like.
        packages: Names, with versions where the language's index has several: `numpy`, `uvicorn[standard]>=0.30,<1`,
            `@scope/pkg@1.2.3`, `data.table`.

    Raises:
        ConfigurationError: The image takes no packages, there are too many, or one is not a plain name; it is named.
    """
    asked = list(packages)
    spelled = _SPELLINGS.get(image)
    if spelled is None:
        msg = f"the image {image!r} takes no packages: {', '.join(_SPELLINGS)} do"
        raise ConfigurationError(msg)
    if len(asked) > MAX_PACKAGES:
        msg = f"{len(asked)} packages are too many: at most {MAX_PACKAGES}"
        raise ConfigurationError(msg)
    # Boundary: these words come from a model. What an installer reads as an option, a path, a URL or a command is
    # refused here, before anything else happens.
    return tuple(sorted({_spelled(spelled, package) for package in asked}))


def _spelled(spell: Callable[[str], str | None], package: str) -> str:
    if len(package) > MAX_PACKAGE_CHARACTERS:
        msg = f"the package {package[:40] + '...'!r} is longer than {MAX_PACKAGE_CHARACTERS} characters"
        raise ConfigurationError(msg)
    found = spell(package)
    if found is None:
        msg = (
            f"{package!r} is not the name of a package: give a name, with versions where there are several, "
            "and no option, path, URL or command"
        )
        raise ConfigurationError(msg)
    return found


def _python(package: str) -> str | None:
    if not (package.isascii() and _PYTHON.fullmatch(package)):
        return None
    try:
        parsed = Requirement(package)
    except InvalidRequirement:
        return None
    extras = f"[{','.join(sorted(map(canonicalize_name, parsed.extras)))}]" if parsed.extras else ""
    return f"{canonicalize_name(parsed.name)}{extras}{','.join(sorted(map(str, parsed.specifier)))}"


def _npm(package: str) -> str | None:
    return package if package.isascii() and _NPM.fullmatch(package) else None


def _r(package: str) -> str | None:
    return package if package.isascii() and _R.fullmatch(package) else None


_SPELLINGS: Final[Mapping[str, Callable[[str], str | None]]] = {"deno": _npm, "python": _python, "r": _r}
"""By image: how its packages are spelled; None for what is no package."""
