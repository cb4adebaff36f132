"""What a tool asks of its container: pure data, from which hardening makes a specification."""

from pydantic import BaseModel, ConfigDict


class Mount(BaseModel):
    """A folder of the host that a container sees read-only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    target: str


class WarmStart(BaseModel):
    """How a container of a profile that names a program waits in a pool until somebody uses it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    argv: tuple[str, ...]
    """The program to start in the place of the profile's: the same one, which does ahead what takes time. The first
    line that it writes says that it waits; whoever uses it reads that line first."""
    ask: bytes
    """A line that asks it whether it still answers, without changing anything."""
    answer: bytes
    """The line that it answers with, newline included."""


class SandboxProfile(BaseModel):
    """What a container must offer to a tool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str
    """A name of our own images (`python`, `shell`), or any reference that the engine knows."""
    argv: tuple[str, ...] | None = None
    """The program to start at once; None: park, and start what the tool says later."""
    warm: WarmStart | None = None
    """How such a container waits in a pool; None: one with a program of its own is not kept in one."""
    tty: bool = False
    """Whether the program gets a terminal; stdout and stderr are then one stream."""
    mounts: tuple[Mount, ...] = ()
    """Folders of the host to show, read-only."""
    groups: tuple[int, ...] = ()
    """Numbers of groups of the host whose files the program may read beside its own."""
