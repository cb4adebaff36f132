"""How `aeolus agent --json` shows a run: its events, one JSON object on a line."""

import asyncio
import sys
from pathlib import Path

from aeolus_sandbox.consumers.pictures import PictureFolder, pictures_in
from aeolus_sandbox.events import StreamEvent, ToolOutput
from aeolus_sandbox.storage.event_json import event_to_json


class EventLines:
    """A consumer that writes every event to stdout as a line of ASCII, and saves images where it is told to."""

    def __init__(self, images: Path | None) -> None:
        self._out = sys.stdout.buffer
        self._images = None if images is None else PictureFolder(images)

    async def on_event(self, event: StreamEvent) -> None:
        """Write an event; in a thread, because whoever reads it may be slow."""
        await asyncio.to_thread(self._write, event)

    def _write(self, event: StreamEvent) -> None:
        if self._images is not None and isinstance(event, ToolOutput):
            for picture in pictures_in(event.chunk):
                self._images.save(picture)
        self._out.write(event_to_json(event).encode("ascii") + b"\n")
        self._out.flush()
