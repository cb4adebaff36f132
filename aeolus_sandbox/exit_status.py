"""How a run ended, as data: what untrusted code does is never an exception."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from aeolus_sandbox.limits import LimitName

ExitReason = Literal["exited", "timed_out", "out_of_memory", "output_limit", "killed", "cancelled", "lost"]


class ExitStatus(BaseModel):
    """Why and how a run ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: ExitReason
    """`exited`: by itself. `timed_out`, `output_limit`, `out_of_memory`: by a limit. `killed`: by SIGKILL from inside
    or outside. `cancelled`: by the caller. `lost`: the engine or the container went away."""
    code: int | None = None
    """The exit code where there is one; 128 + n after signal n."""
    limit_hit: LimitName | None = None
    """The limit that was hit, also when the run survived it (a child killed for memory)."""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with code 0."""
        return self.reason == "exited" and self.code == 0

    def __str__(self) -> str:
        """Say it in words."""
        words = self.reason.replace("_", " ")
        code = "" if self.code is None else f" with code {self.code}"
        limit = "" if self.limit_hit is None else f" ({self.limit_hit.replace('_', ' ')} limit)"
        return f"{words}{code}{limit}"


class Stop(BaseModel):
    """An order to end a run, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: ExitReason
    limit_hit: LimitName | None = None
