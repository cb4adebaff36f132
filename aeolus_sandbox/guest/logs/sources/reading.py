"""The reading of one file, one block at a time."""

import errno
from typing import Final

from aeolus_sandbox.guest.logs.sources.beginnings import Beginnings
from aeolus_sandbox.guest.logs.sources.catalog import Catalog
from aeolus_sandbox.guest.logs.sources.generations import Generation, ReadBlock
from aeolus_sandbox.guest.logs.sources.paths import RefusedPath
from aeolus_sandbox.guest.logs.sources.rotation import Rotation
from aeolus_sandbox.guest.logs.sources.splitting import Split

BLOCK_BYTES: Final = 256 * 1024
"""How many bytes are read at once at most."""
FAILING_S: Final = 1.0
"""How long a followed file may be unreadable before that is told: rotation makes files whose rights it sets after."""


class Reader:
    """Reads files, and begins and ends them."""

    def __init__(self, catalog: Catalog, rotation: Rotation) -> None:
        self.bytes_read = 0
        self._catalog = catalog
        self._rotation = rotation
        self._beginnings = Beginnings(catalog, rotation)

    def step(self, generation: Generation, max_bytes: int) -> ReadBlock | None:
        """Return the next lines of a file; None: there are none in what was read, or it has to wait."""
        if generation.is_gone:
            return self._finish(generation)
        try:
            fd = self._catalog.open_files.get(generation)
            generation.failed_at, generation.is_failure_told = None, False
            return self._read(generation, fd, max(1, min(BLOCK_BYTES, max_bytes)))
        except OSError as error:
            self._fail(generation, error)
            return None

    def _read(self, generation: Generation, fd: int, max_bytes: int) -> ReadBlock | None:
        if generation.file_head and not generation.is_reading and generation.is_replaced(fd):
            self._rotation.truncate(generation)
            return None
        if generation.is_passed:
            self._catalog.finish(generation)
            return None
        if not generation.is_begun and not self._beginnings.begin(generation, fd):
            return None
        data = generation.content.read(fd, max_bytes)
        # Looked at after the reading: what was read of a file that is another by now is not of this one.
        if generation.is_replaced(fd):
            self._rotation.truncate(generation)
            return None
        # After the reading too: the writer reopens its log after it has written to the old one for the last time.
        if data and not generation.content.is_compressed and self._rotation.has_older_lines(generation):
            return None
        self.bytes_read += len(data)
        block = self._block(generation, generation.take(data)) if data else None
        self._catalog.tell_nuls(generation)
        if generation.content.is_at_end:
            return self._rest(generation, block)
        return block

    def _rest(self, generation: Generation, block: ReadBlock | None) -> ReadBlock | None:
        """See to a file whose end was met."""
        content = generation.content
        is_over = (
            generation.is_final or content.fault is not None or (content.is_compressed and content.is_whole)
        )
        if not is_over:
            self._catalog.rest(generation)
            if content.is_compressed:
                self._catalog.leaving[generation] = None
        elif block is None:
            return self._finish(generation)
        return block  # with a block in hand, the end is met again

    def _finish(self, generation: Generation) -> ReadBlock | None:
        """Give the last line that has no end, and be done."""
        content, path = generation.content, generation.path
        if content.is_compressed and not content.is_whole and not generation.is_gone:
            text = f"{path} cannot be read further: {content.fault or 'it ends in the middle'}"
            self._catalog.notice("unreadable", text, path, offset=content.offset)
        split = generation.splitter.finish()
        self._catalog.tell_nuls(generation)
        if generation.is_gone:
            self._catalog.forget(generation)
        else:
            self._catalog.finish(generation)
        return None if split is None else self._block(generation, split)

    def _block(self, generation: Generation, split: Split | None) -> ReadBlock | None:
        if split is None:
            return None
        return ReadBlock(
            path=generation.path,
            lines=split.lines,
            start=split.start,
            ends=split.ends,
            flags=split.flags,
            lengths=split.lengths,
            modified_s=generation.seen[1] / 1e9,
            generation=generation,
        )

    def _fail(self, generation: Generation, error: OSError) -> None:
        path = generation.path
        if error.errno in (errno.EMFILE, errno.ENFILE):
            self._catalog.wait_for_descriptor(generation)
            return
        if isinstance(error, FileNotFoundError):
            if not generation.is_done and generation.seen[0] > generation.content.file_offset:
                lost = generation.seen[0] - generation.content.file_offset
                self._catalog.notice(
                    "lost", f"{path} was deleted before all of it was read", path, count=lost
                )
            generation.is_gone = True
            return
        self._catalog.rest(generation)
        if not isinstance(error, RefusedPath) and not self._has_lasted(generation):
            self._catalog.failing[generation] = None
            return
        if not generation.is_failure_told:
            kind = "refused" if isinstance(error, RefusedPath) else "unreadable"
            self._catalog.notice(kind, f"{path} cannot be read: {error.strerror or error}", path)
            generation.is_failure_told = True
        if generation.is_final:
            self._catalog.finish(generation)

    def _has_lasted(self, generation: Generation) -> bool:
        """Return whether a file could not be opened for long enough to tell it."""
        now = self._catalog.clock()
        if generation.failed_at is None:
            generation.failed_at = now
        return generation.is_final or now - generation.failed_at >= FAILING_S
