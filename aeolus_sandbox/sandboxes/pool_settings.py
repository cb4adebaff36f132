"""How a warm pool behaves, and what it says of itself."""

from pydantic import BaseModel, ConfigDict, Field

from aeolus_sandbox.streaming.tool import IsolationMode


class PoolSettings(BaseModel):
    """How a manager's warm pool behaves; times are in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    refill_concurrency: int = Field(default=2, ge=1, le=64)
    """How many containers it starts at once, over all kinds."""
    lifetime_s: float = Field(default=1800.0, gt=0)
    """How long a container waits before another takes its place."""
    health_check_s: float = Field(default=60.0, gt=0)
    """How often the waiting ones are asked whether they still answer. One that ends is noticed at once."""
    check_timeout_s: float = Field(default=0.5, gt=0)
    """How long one may take to answer; whoever wants a container waits at most three times as long for a good one."""
    backoff_s: float = Field(default=1.0, gt=0)
    """How long the pool rests after a start of a kind has failed; twice as long after the next failure, and so on."""
    max_backoff_s: float = Field(default=60.0, gt=0)
    """The longest such rest."""
    demand_window_s: float = Field(default=60.0, gt=0)
    """For how long a burst of demand is remembered, where a kind may grow beyond its minimum."""


class PoolStats(BaseModel):
    """One kind of container in a pool, at a moment."""

    model_config = ConfigDict(frozen=True)

    tool: str
    """The name of the tool for which it was asked."""
    image: str
    """The image, as the tool's profile names it."""
    isolation: IsolationMode
    tty: bool
    argv: tuple[str, ...] | None
    """The program that waits; None: a shell that waits for its command."""
    minimum: int
    maximum: int
    target: int
    """How many are to wait now: between the two, by recent demand."""
    parked: int
    """How many wait."""
    starting: int
    """How many are being started."""
    hits: int
    """How often somebody got one."""
    misses: int
    """How often somebody wanted one and none was there, so that a cold one was started."""
    hit_rate: float | None
    """The share of hits; None: nobody has asked yet."""
    discarded: int
    """How many were removed because they had ended, said something unasked, or gave no answer."""
    expired: int
    """How many were removed because they had waited for long, or because fewer were wanted."""
    failures: int
    """How often a start has failed."""
    last_error: str | None
    """What the last start failed with; None: it did not fail."""
