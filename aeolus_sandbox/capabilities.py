"""Which tools a manager may start: the grants of whoever built it, and the check of a tool against them."""

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

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
    """Read log files of the host, below the folders that a `ReadLogs` names."""
    CUSTOM = "custom"
    """Whatever a tool of your own asks a grant for."""


def is_inside(path: str, folder: str) -> bool:
    """Return whether an absolute, normal path is the folder or below it: `/logs-other` is not below `/logs`."""
    return path == folder or path.startswith(f"{folder}/")


def _normal_folder(path: str) -> str:
    folder = path.rstrip("/")
    if not folder.startswith("/") or "\0" in folder or {"", ".", ".."} & set(folder.split("/")[1:]):
        msg = f"{path!r} is not an absolute, normal path of a folder below '/'"
        raise ValueError(msg)
    return folder


class ReadLogs(BaseModel):
    """Whose log files of the host may be read; without a root it grants nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    roots: tuple[Annotated[str, AfterValidator(_normal_folder)], ...] = ()
    """Folders of the host, by absolute, normal paths: what is below them may be read, and be shown to a container
    read-only."""
    groups: tuple[Annotated[str, Field(min_length=1)] | Annotated[int, Field(ge=1, lt=2**32 - 1)], ...] = ()
    """Groups of the host, by name or number, whose files may be read as well as those that everybody may read: most
    of `/var/log` belongs to `adm`."""

    def narrowed_to(self, asked: "ReadLogs") -> "ReadLogs":
        """Return what was asked for, as far as it lies inside of this."""
        return ReadLogs(
            roots=tuple(root for root in asked.roots if any(is_inside(root, own) for own in self.roots)),
            groups=tuple(group for group in asked.groups if group in self.groups),
        )

    def joined_with(self, other: "ReadLogs") -> "ReadLogs":
        """Return both together."""
        return ReadLogs(
            roots=tuple(dict.fromkeys(self.roots + other.roots)),
            groups=tuple(dict.fromkeys(self.groups + other.groups)),
        )


NO_LOGS: Final = ReadLogs()


class Grants(BaseModel):
    """The capabilities that a manager may use; an empty grant grants nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: frozenset[CapabilityKind] = frozenset()
    logs: ReadLogs = NO_LOGS
    """Which log files; only with the kind `READ_LOGS`, which `of` adds."""

    @classmethod
    def of(cls, *grants: CapabilityKind | ReadLogs) -> Self:
        """Return exactly these grants together; a `ReadLogs` with a root grants the kind `READ_LOGS`."""
        kinds = {grant for grant in grants if isinstance(grant, CapabilityKind)}
        logs = NO_LOGS
        for grant in grants:
            if isinstance(grant, ReadLogs):
                logs = logs.joined_with(grant)
        if logs.roots:
            kinds.add(CapabilityKind.READ_LOGS)
        return cls(kinds=frozenset(kinds), logs=logs)

    @property
    def log_access(self) -> ReadLogs:
        """Which log files may be read; without the kind `READ_LOGS`, none."""
        return self.logs if CapabilityKind.READ_LOGS in self.kinds else NO_LOGS

    def narrowed_to(self, asked: "Grants") -> "Grants":
        """Return what these grants and those that were asked for have in common."""
        return Grants(kinds=self.kinds & asked.kinds, logs=self.logs.narrowed_to(asked.logs))


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
    grant = f"CapabilityKind.{required.name}"
    if required is CapabilityKind.READ_LOGS:
        grant = 'ReadLogs(roots=["/var/log"])'
    msg = (
        f"the tool {tool_name!r} requires the capability {required.value!r}, which was not granted: "
        f"pass grants=Grants.of({grant}, ...) to the SessionManager if it may"
    )
    raise CapabilityDenied(msg)
