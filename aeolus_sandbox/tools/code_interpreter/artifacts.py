"""What code leaves behind in its workspace, as its result names it."""

import mimetypes
from pathlib import PurePosixPath
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

ArtifactChange = Literal["created", "modified", "deleted"]

UNKNOWN_TYPE: Final = "application/octet-stream"
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x00asm", "application/wasm"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"PAR1", "application/vnd.apache.parquet"),
)
_TOLD_BY_BYTES: Final = frozenset(mime for _, mime in _SIGNATURES) | {"image/webp"}
# The table that comes with Python alone: what a machine adds to it must not change what a name means.
_BY_SUFFIX: Final = mimetypes.MimeTypes().types_map[True] | {
    ".ipynb": "application/x-ipynb+json",
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".webp": "image/webp",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


class Artifact(BaseModel):
    """A file of the workspace that the code has written or removed.

    Its content is fetched with `StreamingToolSession.read_artifact` or `save_artifact`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    """Relative to the workspace, and never out of it; the code has chosen it, so take it for a label."""
    change: ArtifactChange
    """What happened to it since the call before: a file that was put in by `files` counts as there already."""
    size_bytes: int
    """Its size when the code had ended."""
    mime_type: str
    """What it seems to be, by its first bytes and its name."""

    def as_text(self) -> str:
        """Return it in words, on one line."""
        path = self.path if self.path.isprintable() else repr(self.path)
        if self.change == "deleted":
            return f"{path} (deleted)"
        return f"{path} ({self.change}, {self.size_bytes:,} bytes, {self.mime_type})"


def media_type(path: str, head: bytes) -> str:
    """Return the media type of a file by its first bytes and its name."""
    for signature, mime_type in _SIGNATURES:
        if head.startswith(signature):
            return mime_type
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    by_name = _BY_SUFFIX.get(PurePosixPath(path).suffix.lower())
    # Boundary: a file is not shown as an image because the code has called it one.
    if by_name is not None and by_name not in _TOLD_BY_BYTES:
        return by_name
    return "text/plain" if by_name is None and _is_text(head) else UNKNOWN_TYPE


def _is_text(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:  # the last character may be cut
        if error.start < len(head) - 3:
            return False
    return bool(head) and b"\x00" not in head
