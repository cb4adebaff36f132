"""What the tests of followed log files write with, and the reader as they see it."""

import gzip
import os
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aeolus_sandbox.guest.logs.frames import FilePosition, Notice, Tail, TailPath
from aeolus_sandbox.guest.logs.sources.following import LogFiles

if TYPE_CHECKING:
    from aeolus_sandbox.guest.logs.lines import Block


class Clock:
    """Monotonic seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Following(AbstractContextManager["Following"]):
    """A `LogFiles` below a root of the test's, and all that it has given."""

    def __init__(
        self,
        root: Path,
        *paths: str,
        patterns: Iterable[str] = (),
        follow: bool = True,
        mounts: Iterable[str] = ("/logs",),
        cursor: Iterable[FilePosition] = (),
        **options: Any,
    ) -> None:
        self.clock = Clock()
        self.blocks: list[Block] = []
        self.notices: list[Notice] = []
        wanted = [*(TailPath(path) for path in paths), *(TailPath(path, True) for path in patterns)]
        options.setdefault("uses_events", False)
        self.request = Tail(1, wanted, list(mounts), follow=follow, cursor=list(cursor), **options)
        self.files = LogFiles(self.request, root=str(root), notify=self.notices.append, clock=self.clock)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.files.close()

    def read(self, blocks: int | None = None, max_bytes: int = 1 << 20) -> list[str]:
        """Read what is there, or some blocks of it; return its lines."""
        read: list[Block] = []
        while (blocks is None or len(read) < blocks) and (block := self.files.read(max_bytes)) is not None:
            assert len(block.lines) == len(block.ends) > 0
            read.append(block)
        self.blocks += read
        return [line.decode(errors="replace") for block in read for line in block.lines]

    def look(self) -> list[str]:
        """Notice what has changed, and read it."""
        self.files.note_changes()
        return self.read()

    def wait(self, seconds: float) -> list[str]:
        """Let time pass in steps of a second, looking and reading."""
        lines: list[str] = []
        for _ in range(int(seconds)):
            self.clock.now += 1
            lines += self.look()
        return lines

    def kinds(self) -> list[str]:
        """What was told, by its kinds."""
        return [notice.kind for notice in self.notices]

    def told(self, kind: str) -> list[Notice]:
        """What was told of one kind."""
        return [notice for notice in self.notices if notice.kind == kind]


class Log:
    """A log file and what its writer and its rotation do."""

    def __init__(self, root: Path, path: str = "/logs/app.log") -> None:
        self.path = root / path.removeprefix("/")
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, *lines: str, end: str = "\n") -> None:
        """Append lines."""
        self.append("".join(f"{line}{end}" for line in lines).encode())

    def append(self, data: bytes) -> None:
        """Append bytes."""
        with self.path.open("ab") as file:
            file.write(data)

    def beside(self, suffix: str) -> Path:
        """Return the path of a rotated file."""
        return self.path.with_name(self.path.name + suffix)

    def rename(self, suffix: str = ".1") -> Path:
        """Rotate by renaming."""
        return self.path.rename(self.beside(suffix))

    def copy_and_truncate(self, suffix: str = ".1") -> Path:
        """Rotate as logrotate's `copytruncate` does."""
        copy = self.beside(suffix)
        shutil.copyfile(self.path, copy)
        os.truncate(self.path, 0)
        return copy


def gzip_file(path: Path, *, cut: int | None = None, target: Path | None = None) -> Path:
    """Compress a file as gzip(1) does: its times are kept, and it is removed."""
    packed = target or path.with_name(path.name + ".gz")
    status = path.stat()
    packed.write_bytes(gzip.compress(path.read_bytes())[:cut])
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.unlink()
    return packed


def set_age(path: Path, seconds: int) -> None:
    """Let a file have been written to some seconds after a fixed moment."""
    os.utime(path, (1_700_000_000 + seconds, 1_700_000_000 + seconds))
