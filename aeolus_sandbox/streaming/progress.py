"""How far the reader of a recorded run has come, written down now and then, so that a new process goes on from there."""

import asyncio
import logging
from typing import Final, Generic, Protocol, TypeVar

from aeolus_sandbox.streaming.chunks import C, OutputChunk, SummaryChunk
from aeolus_sandbox.streaming.services import RunRecord

_logger = logging.getLogger(__name__)

PROGRESS_EVERY_S: Final = 1.0
"""How often it is written down: after a crash, the reader gets again what it got in the last such time."""

P_contra = TypeVar("P_contra", bound=OutputChunk, contravariant=True)


class Progress(Protocol[P_contra]):
    """A tool's way to say where to go on."""

    def after(self, chunk: P_contra) -> str:
        """Return what `ToolContext.progress` must be to go on after this chunk, the last that the reader is done with.

        Called in the event loop, about once a second, with a chunk as the filters and the policy gave it.
        """
        ...


class ProgressKeeper(Generic[C]):
    """Writes down the progress of one session."""

    def __init__(self, record: RunRecord, progress: Progress[C]) -> None:
        self._record = record
        self._progress = progress
        self._written: C | None = None
        self._fails = False
        self.given: C | None = None
        """The chunk that the reader has in its hands."""
        self.latest: C | None = None
        """The last chunk that the reader is done with: it has come for the next one. Before that, a crash would lose
        what it was given."""

    async def run(self) -> None:
        """Write whenever there is something new, until cancelled."""
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            await self.write()

    async def write(self) -> None:
        """Write down the newest progress; what cannot be written is logged (once), and tried again with the next."""
        latest = self.latest
        if (
            latest is None or latest is self._written or isinstance(latest, SummaryChunk)
        ):  # which knows no place
            return
        try:
            await self._record.store_progress(self._progress.after(latest))
        except Exception as error:  # noqa: BLE001 - whatever fails, the tool's own `after` too: the run goes on
            level = logging.DEBUG if self._fails else logging.WARNING
            _logger.log(level, "the progress of the run %r is not recorded: %r", self._record.key, error)
            self._fails = True
        else:
            self._written, self._fails = latest, False
