"""Reads files below the working directory for the host, one after the other, as fast as the host takes them."""

import asyncio
import os
from collections import deque
from typing import Final

from aeolus_sandbox.guest.frames import FILE_PIECE_BYTES, Done, FilePiece, ReadFile
from aeolus_sandbox.guest.pipes import ReplyWriter
from aeolus_sandbox.guest.workspace_paths import RefusedPath, open_for_reading

MAX_WAITING: Final = 32
"""How many reads may wait."""


class WorkspaceReads:
    """The reads that were asked for; `run` serves them."""

    def __init__(self, root_fd: int, replies: ReplyWriter) -> None:
        """Read below the folder of that descriptor, which stays the caller's."""
        self._root_fd = root_fd
        self._replies = replies
        self._waiting: deque[ReadFile] = deque()
        self._asked = asyncio.Event()
        self._current: int | None = None

    def ask(self, request: ReadFile) -> None:
        """Queue a read."""
        if len(self._waiting) >= MAX_WAITING:
            self._replies.post(Done(op=request.op, status="refused", message="too many reads wait already"))
            return
        self._waiting.append(request)
        self._asked.set()

    def interrupt(self, op: int) -> bool:
        """End the read of that operation; False when there is none."""
        for request in self._waiting:
            if request.op == op:
                self._waiting.remove(request)
                self._replies.post(Done(op=op, status="aborted"))
                return True
        if op and op == self._current:
            self._current = None
            return True
        return False

    async def run(self) -> None:
        """Serve reads until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._waiting:
                request = self._waiting.popleft()
                self._current = request.op
                self._replies.post(await self._read(request))
                self._current = None

    async def _read(self, request: ReadFile) -> Done:
        try:
            fd = open_for_reading(self._root_fd, request.path)
            try:
                await self._send(fd, request)
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:  # ValueError: a NUL or a lone surrogate in the path
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            return Done(op=request.op, status="refused", message=reason)
        return Done(op=request.op, status="ok" if self._current == request.op else "interrupted")

    async def _send(self, fd: int, request: ReadFile) -> None:
        # What the code appends meanwhile is not sent: a file that grows as fast as it is read has no end.
        left_bytes = os.fstat(fd).st_size
        if left_bytes > request.max_bytes:
            raise RefusedPath(f"it has {left_bytes} bytes, more than the {request.max_bytes} allowed")  # noqa: EM102
        while left_bytes and self._current == request.op:
            data = os.read(fd, min(left_bytes, FILE_PIECE_BYTES))
            if not data:
                raise RefusedPath("it became shorter while it was read")  # noqa: EM101
            left_bytes -= len(data)
            self._replies.post(FilePiece(op=request.op, data=data))
            await self._replies.wait_room()
            await asyncio.sleep(0)  # the room may be there at once; others have their turn all the same
