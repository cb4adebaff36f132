"""What the analysis of code says, and what is done about it."""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

Severity = Literal["info", "warning", "danger"]


class CodeFinding(BaseModel):
    """A rule that a piece of code breaks, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: str
    """Stable name of the rule."""
    severity: Severity
    """`info`: worth knowing (it will fail, it starts a program). `warning`: honest code seldom does it, or it hides
    what it does. `danger`: it does harm in the sandbox, or looks for a way out of it."""
    line: int
    """From 1."""
    column: int
    """From 1, in characters."""
    message: str
    """One sentence that says what is wrong and why; of the code, at most the path that a command is about."""

    def as_text(self) -> str:
        """Return the finding in words."""
        return f"{self.severity}: {self.message} [{self.rule}, line {self.line}, column {self.column}]"


class CodePolicy(StrEnum):
    """What happens to code with findings."""

    WARN = "warn"
    """It runs, and the findings are reported."""
    DENY = "deny"
    """It is refused if a finding is a warning or a danger; what cannot be analysed is a warning."""
    IGNORE = "ignore"
    """It is not analysed."""
