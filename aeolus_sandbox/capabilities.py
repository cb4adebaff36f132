"""Which tools a manager may start: the grants of whoever built it, and the check of a tool against them."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Self

from pydantic import BaseModel, ConfigDict

from aeolus_sandbox.errors import CapabilityDenied


class CapabilityKind(StrEnum):
    """What a tool needs to be allowed to do."""

    RUN_COMMANDS = "run_commands"
    """Run shell commands in a container."""
    RUN_CODE = "run_code"
    """Run code in a kernel in a container."""
    INSTALL_PACKAGES = "install_packages"
    """Have an image built with packages that a call names: the build, unlike any sandbox, has network."""
    READ_LOGS = "read_logs"
    """Read log files of the host."""
    CUSTOM = "custom"
    """Whatever a tool of your own asks a grant for."""


class Grants(BaseModel):
    """The capabilities that a manager may use; an empty grant grants nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: frozenset[CapabilityKind] = frozenset()

    @classmethod
    def of(cls, *kinds: CapabilityKind) -> Self:
        """Return grants of exactly these kinds."""
        return cls(kinds=frozenset(kinds))

    def narrowed_to(self, kinds: Iterable[CapabilityKind]) -> "Grants":
        """Return what these grants and `kinds` have in common."""
        return Grants(kinds=self.kinds & frozenset(kinds))


SANDBOXED: Final = Grants.of(CapabilityKind.RUN_COMMANDS, CapabilityKind.RUN_CODE)
"""What a manager grants by default: running things in containers, which touches nothing of the host."""


def require(tool_name: str, required: CapabilityKind | None, grants: Grants) -> None:
    """Check that the grants cover what the tool requires.

    Raises:
        CapabilityDenied: They do not.
    """
    # Boundary: runs before any I/O, so that a refused tool has no effect at all.
    if required is None or required in grants.kinds:
        return
    msg = (
        f"the tool {tool_name!r} requires the capability {required.value!r}, which was not granted: "
        f"pass grants=Grants.of(CapabilityKind.{required.name}, ...) to the SessionManager if it may"
    )
    raise CapabilityDenied(msg)
