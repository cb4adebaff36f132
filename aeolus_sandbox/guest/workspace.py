"""The working directory as the host sees it: files go in and out, and what was changed is told."""

import os

from aeolus_sandbox.guest.frames import Changes, ListChanges, ReadFile, WriteFile
from aeolus_sandbox.guest.kernel_messages import safe_line
from aeolus_sandbox.guest.pipes import ReplyWriter
from aeolus_sandbox.guest.workspace_changes import WorkspaceChanges
from aeolus_sandbox.guest.workspace_files import WorkspaceFiles
from aeolus_sandbox.guest.workspace_paths import open_root
from aeolus_sandbox.guest.workspace_reads import WorkspaceReads


class Workspace:
    """Serves requests for files below one folder."""

    def __init__(self, root: str, replies: ReplyWriter) -> None:
        self._replies = replies
        self._root_fd = open_root(root)
        self._changes = WorkspaceChanges(self._root_fd)
        self._files = WorkspaceFiles(self._root_fd, on_written=self._changes.note_written)
        self._reads = WorkspaceReads(self._root_fd, replies)

    async def run(self) -> None:
        """Serve reads until cancelled; all else is served at once."""
        await self._reads.run()

    def serve(self, request: WriteFile | ListChanges | ReadFile) -> None:
        """Begin to serve a request."""
        match request:
            case WriteFile():
                done = self._files.write(request)
                if done:
                    self._replies.post_lines(safe_line(done))
            case ListChanges():
                self._replies.post(self.changes(request.op))
            case ReadFile():
                self._reads.ask(request)

    @property
    def looks_quickly(self) -> bool:
        """Whether what is to be said next may wait for a look at what was changed."""
        return self._changes.looks_quickly

    def changes(self, op: int) -> Changes:
        """Look which files were changed since the last look, and return what an operation is told of it."""
        return self._changes.take(op)

    def interrupt(self, op: int) -> bool:
        """End the read of that operation; False when there is none."""
        return self._reads.interrupt(op)

    def close(self) -> None:
        """Close what is open."""
        self._files.close()
        os.close(self._root_fd)
