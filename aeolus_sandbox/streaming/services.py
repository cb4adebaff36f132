"""What a session is given by whoever opens it: the services that policies use, and the record of its run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.streaming.approval import Approvals
from aeolus_sandbox.streaming.text_model import TextModel


class RunRecord(Protocol):
    """Where a run that can be recovered is written down."""

    @property
    def key(self) -> str:
        """The run's idempotency key."""
        ...

    @property
    def is_replay(self) -> bool:
        """Whether the result is an earlier run's, and nothing runs."""
        ...

    @property
    def progress(self) -> str | None:
        """How far an earlier attempt at the run came, as its tool said it; None: it begins at the beginning."""
        ...

    async def store_progress(self, progress: str) -> None:
        """Keep how far the run has come, for another attempt; without effect when the run is another's, or has ended.

        Raises:
            StorageError: It is not kept.
        """
        ...

    async def store(self, final: BaseModel) -> None:
        """Keep the result for the next call with the same key.

        Raises:
            CheckpointConflict: Another process has taken the run over; its result counts.
            StorageError: It is not kept; calling again tries again.
        """
        ...

    async def give_up(self) -> None:
        """Say that the run ended without a result that may stand for another run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionServices:
    """What the manager gives to all its sessions."""

    tasks: BackgroundTasks
    text_model: Callable[[str], TextModel]
    """See `PolicyContext.text_model`."""
    approvals: Approvals
    """See `PolicyContext.approvals`."""
