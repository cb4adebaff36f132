"""The languages that there are kernels for, by all their names."""

from dataclasses import dataclass
from typing import Final

from aeolus_sandbox.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Language:
    """One language."""

    name: str
    """As the guest program knows it."""
    image: str
    """The image with its kernel."""
    aliases: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    """Of files that hold code in it, in lower case."""


LANGUAGES: Final = (
    Language("bash", "bash", aliases=("sh", "shell"), suffixes=(".sh", ".bash")),
    Language("javascript", "deno", aliases=("js", "deno"), suffixes=(".js", ".mjs")),
    Language("python", "python", aliases=("py", "python3"), suffixes=(".py",)),
    Language("r", "r", suffixes=(".r",)),
    Language("typescript", "deno", aliases=("ts",), suffixes=(".ts",)),
    Language("wasm", "wasm", aliases=("webassembly", "wat"), suffixes=(".wat", ".wasm")),
)
_BY_NAME: Final = {name: language for language in LANGUAGES for name in (language.name, *language.aliases)}


def language_named(name: str) -> Language:
    """Return a language by its name or one of its aliases; case does not count.

    Raises:
        ConfigurationError: There is no kernel for it.
    """
    found = _BY_NAME.get(name.lower())
    if found is None:
        known = ", ".join(language.name for language in LANGUAGES)
        msg = f"there is no kernel for the language {name!r}: there is one for {known}"
        raise ConfigurationError(msg)
    return found


def language_of_file(suffix: str) -> str | None:
    """Return the language that files with a suffix such as `.py` are in, or None; case does not count."""
    return next((language.name for language in LANGUAGES if suffix.lower() in language.suffixes), None)
