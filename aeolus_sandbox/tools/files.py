"""Files that a caller puts into a workspace: where they may go, and what they may come from."""

import base64
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, PlainSerializer, SkipValidation, WithJsonSchema

from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.streaming.source_file import SourceFile

_MAX_PATH_BYTES: Final = 4096
_MAX_NAME_BYTES: Final = 255


def _content(value: object) -> bytes | Path:
    if isinstance(value, bytes | Path):
        return value
    # Boundary: text is content, never a path of the host: a model that writes the input must not read host files.
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, Mapping) and set(value) == {"base64"} and isinstance(value["base64"], str):
        return base64.b64decode(value["base64"], validate=True)
    msg = 'a file is bytes, text, {"base64": ...}, or a pathlib.Path to read it from'
    raise ValueError(msg)


def _as_json(value: bytes | Path) -> Any:
    if isinstance(value, Path):
        msg = (
            f"the input names the host file {str(value)!r}, which cannot be written as JSON: give its content"
        )
        raise ConfigurationError(msg)
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


FileContent = Annotated[
    SkipValidation[bytes | Path],
    BeforeValidator(_content),
    PlainSerializer(_as_json, when_used="json"),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"base64": {"type": "string"}}}]}
    ),
]
"""Content of a file: bytes, text, or (from Python only) a path to read."""


def workspace_path(path: str) -> str:
    """Return the normal form of a path below the workspace.

    Raises:
        ConfigurationError: It is absolute, leaves the workspace, or cannot be a path.
    """
    pure = PurePosixPath(path)
    parts = pure.parts
    # Boundary: checked before anything is sent; the guest checks again where it writes.
    if not parts or pure.is_absolute() or ".." in parts or path.endswith("/"):
        msg = f"{path!r} is not a file below the workspace: give a relative path without '..'"
        raise ConfigurationError(msg)
    try:
        encoded = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        msg = f"{path[:60]!r} cannot be a path: it holds a lone surrogate"
        raise ConfigurationError(msg) from error
    if "\0" in path or len(encoded) > _MAX_PATH_BYTES:
        msg = f"{path[:60]!r} cannot be a path: it has a zero byte or is longer than {_MAX_PATH_BYTES} bytes"
        raise ConfigurationError(msg)
    if any(len(part.encode("utf-8", "surrogateescape")) > _MAX_NAME_BYTES for part in parts):
        msg = f"{path[:60]!r} has a name of more than {_MAX_NAME_BYTES} bytes"
        raise ConfigurationError(msg)
    return str(pure)


def check_files(files: Mapping[str, bytes | Path], *, max_bytes: int) -> list[SourceFile]:
    """Return the files that are to be sent; blocks where it looks at those of the host, so call it in a thread.

    Raises:
        ConfigurationError: A path is not below the workspace, a source is not a regular file, or all together are
            larger than `max_bytes`.
    """
    checked = {workspace_path(path): content for path, content in files.items()}
    found = [SourceFile.of(path, content) for path, content in checked.items()]
    if sum(file.size_bytes for file in found) > max_bytes:
        msg = f"the files are larger than the workspace of {max_bytes} bytes: raise disk_bytes, or send less"
        raise ConfigurationError(msg)
    return found
