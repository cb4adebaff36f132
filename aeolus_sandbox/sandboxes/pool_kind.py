"""What two containers must have in common so that one can stand for the other."""

from dataclasses import dataclass
from typing import Self

from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.limits import CONTAINER_LIMITS, Limits
from aeolus_sandbox.profiles import SandboxProfile
from aeolus_sandbox.streaming.tool import IsolationMode


@dataclass(frozen=True, slots=True)
class PoolKind:
    """A kind of container: whoever asks for this one can have any of it."""

    profile: SandboxProfile
    isolation: IsolationMode
    container_limits: tuple[float, ...]

    @classmethod
    def of(cls, profile: SandboxProfile, limits: Limits, isolation: IsolationMode) -> Self:
        """Return the kind of container that a session of these limits starts."""
        return cls(profile, isolation, tuple(getattr(limits, name) for name in CONTAINER_LIMITS))


def check_poolable(profile: SandboxProfile) -> None:
    """Check that containers of a profile can wait for somebody.

    Raises:
        ConfigurationError: Its program does not say how it waits.
    """
    if profile.argv is not None and profile.warm is None:
        msg = f"the program {profile.argv!r} cannot wait in a pool: its profile has no `warm`"
        raise ConfigurationError(msg)


def check_size(minimum: int, maximum: int) -> None:
    """Check how many are to wait.

    Raises:
        ConfigurationError: A number is negative, or the two contradict each other.
    """
    if not 0 <= minimum <= maximum:
        msg = f"a pool of {minimum!r} to {maximum!r} containers does not exist: give 0 <= minimum <= maximum"
        raise ConfigurationError(msg)
