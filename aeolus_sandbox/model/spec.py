"""The name of a language model, such as `anthropic/claude-haiku-4-5`: who serves it, and which it is."""

import re
from dataclasses import dataclass
from typing import Final, Self

from aeolus_sandbox.errors import ConfigurationError

PROVIDERS: Final = ("anthropic",)
"""Whose models can be asked."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One language model of one provider."""

    provider: str
    name: str
    """What the provider calls it."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the model of a name `provider/name`.

        Raises:
            ConfigurationError: It is not such a name, or the provider is not known.
        """
        provider, slash, name = text.partition("/")
        if not slash or not _NAME.fullmatch(name):
            msg = f"{text!r} is no name of a model: give provider/name, such as 'anthropic/claude-haiku-4-5'"
            raise ConfigurationError(msg)
        if provider not in PROVIDERS:
            known = ", ".join(map(repr, PROVIDERS))
            msg = f"the provider {provider!r} of the model {text!r} is not known: known is {known}"
            raise ConfigurationError(msg)
        return cls(provider, name)
