"""Resource limits of a session: safe defaults, and narrowing per call."""

from enum import StrEnum
from typing import Final, Self

from pydantic import BaseModel, ByteSize, ConfigDict, Field, model_validator

from aeolus_sandbox.errors import ConfigurationError

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
LONGEST_WALL_TIME_S: Final = 7 * 24 * 3600
CONTAINER_LIMITS: Final = ("memory_bytes", "cpus", "pids", "disk_bytes", "tmp_bytes", "open_files")
"""Fields of `Limits` that a container has from its start; the others are each session's own."""


class LimitName(StrEnum):
    """A limit that untrusted code can run into."""

    MEMORY = "memory"
    WALL_TIME = "wall_time"
    IDLE_TIME = "idle_time"
    OUTPUT_BYTES = "output_bytes"


class Limits(BaseModel):
    """What one session may use; sizes are in bytes (or texts such as `"512MiB"`), times in seconds.

    The two tmpfs sizes count against the memory limit, because that is where the kernel keeps a tmpfs
    (Documentation/admin-guide/cgroup-v2.rst, "memory.stat: shmem").
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_bytes: ByteSize = Field(default=ByteSize(1 * GIB), ge=16 * MIB)
    """Memory of the whole container; swap is not given."""
    cpus: float = Field(default=1.0, gt=0, le=1024)
    """How many processors' worth of time it gets."""
    pids: int = Field(default=128, ge=8, le=1_000_000)
    """Processes and threads at once."""
    disk_bytes: ByteSize = Field(default=ByteSize(256 * MIB), ge=1 * MIB)
    """Size of `/workspace`; also the largest file."""
    tmp_bytes: ByteSize = Field(default=ByteSize(64 * MIB), ge=1 * MIB)
    """Size of `/tmp`."""
    open_files: int = Field(default=1024, ge=64, le=1_048_576)
    """Open files of each process."""
    wall_time_s: float = Field(default=300.0, gt=0, le=LONGEST_WALL_TIME_S)
    """Time from the launch to the end."""
    idle_time_s: float | None = Field(default=None, gt=0)
    """Time without output and without input after which a session ends; None: no such limit."""
    output_bytes: ByteSize = Field(default=ByteSize(64 * MIB), ge=1024)
    """How much output is held for the reader; `Window` lets the oldest go, other policies end the run."""

    @model_validator(mode="after")
    def _disks_fit_into_memory(self) -> Self:
        for name, share in (("disk_bytes", 2), ("tmp_bytes", 8)):
            if name not in self.model_fields_set:  # what nobody named yields to the memory that was asked for
                self.__dict__[name] = max(1 * MIB, min(self.__dict__[name], self.memory_bytes // share))
        self._shrink_unset_disks()
        if self.disk_bytes + self.tmp_bytes > self.memory_bytes:
            msg = (
                f"disk_bytes ({self.disk_bytes}) and tmp_bytes ({self.tmp_bytes}) are kept in memory, and together "
                f"they exceed memory_bytes ({self.memory_bytes}): raise memory_bytes or lower them"
            )
            raise ValueError(msg)
        return self

    def narrowed_by(self, asked: "Limits | None") -> "Limits":
        """Return these limits with the fields that `asked` sets explicitly, each of which must be narrower.

        Raises:
            ConfigurationError: A field that was asked for is wider than ours.
        """
        if asked is None:
            return self
        changes = {name: getattr(asked, name) for name in asked.model_fields_set}
        for name, value in changes.items():
            own = getattr(self, name)
            if own is not None and (value is None or value > own):
                msg = f"{name}={value!r} is wider than the manager's {own!r}: limits can only be narrowed for a call"
                raise ConfigurationError(msg)
        ours = self.model_dump(exclude={"disk_bytes", "tmp_bytes"} if "memory_bytes" in changes else set())
        try:
            narrowed = Limits.model_validate(ours | changes)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        disks = {
            name: min(getattr(self, name), getattr(narrowed, name))
            for name in ("disk_bytes", "tmp_bytes")
            if name not in changes
        }
        return narrowed.model_copy(update=disks)

    def within(self, *, timeout_s: float | None) -> "Limits":
        """Return these limits with the wall time cut to `timeout_s` where that is shorter."""
        if timeout_s is None or timeout_s >= self.wall_time_s:
            return self
        return self.model_copy(update={"wall_time_s": timeout_s})

    def _shrink_unset_disks(self) -> None:
        """Leave room for programs where less memory was asked for and nobody named the disks' sizes."""
        room = self.memory_bytes // 2
        for name, share in (("disk_bytes", 1), ("tmp_bytes", 4)):
            fitting = ByteSize(max(1 * MIB, room // share))
            if name not in self.model_fields_set and getattr(self, name) > fitting:
                self.__dict__[name] = fitting  # the model is frozen for everybody else
