"""What the options of several commands mean."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError

from aeolus_sandbox.limits import MIB, Limits
from aeolus_sandbox.streaming.tool import IsolationMode

_size = TypeAdapter(ByteSize)


class ContainerIsolation(StrEnum):
    """The isolation modes that a command can ask for."""

    CONTAINER = "container"
    GVISOR = "gvisor"

    @property
    def mode(self) -> IsolationMode:
        """The mode of this name."""
        return IsolationMode(self.value)


def parse_size(text: str) -> int:
    """Return the bytes that a size such as `512m`, `1.5GiB` or `1048576` means; `k`, `m`, `g` are 1024-fold."""
    spelt = text.strip().lower()
    if spelt[-1:] in {"k", "m", "g", "t"}:
        spelt += "ib"
    try:
        size = int(_size.validate_python(spelt))
    except ValidationError as error:
        msg = f"{text!r} is not a size: give bytes, or a number with k, m or g, such as 512m"
        raise typer.BadParameter(msg) from error
    if size < 16 * MIB:
        msg = f"{text!r} is too little memory for a container: give at least 16m"
        raise typer.BadParameter(msg)
    return size


def parse_seconds(text: str) -> float:
    """Return a time limit in seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not 0 < seconds <= 7 * 24 * 3600:
        msg = f"{text!r} is not a number of seconds between 0 and a week"
        raise typer.BadParameter(msg)
    return seconds


def parse_files(texts: list[str]) -> dict[str, Path]:
    """Return path in the workspace and local path of each `LOCAL[:PATH]`."""
    files: dict[str, Path] = {}
    for text in texts:
        local, colon, path = text.rpartition(":")
        if not colon or Path(text).is_file():
            local, path = text, Path(text).name
        source = Path(local)
        if not source.is_file():
            msg = f"{local!r} is not a file"
            raise typer.BadParameter(msg, param_hint="--file")
        if path in files:
            msg = f"two files would be {path!r} in the workspace: give them names, as in LOCAL:PATH"
            raise typer.BadParameter(msg, param_hint="--file")
        files[path] = source
    return files


def limits_for(*, memory_bytes: int | None, timeout_s: float | None) -> Limits:
    """Return the limits of a session that the operator asked for."""
    asked = {"memory_bytes": memory_bytes, "wall_time_s": timeout_s}
    return Limits.model_validate({name: value for name, value in asked.items() if value is not None})


Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", parser=parse_seconds, help="End it after this time."),
]
Memory = Annotated[
    int | None,
    typer.Option(
        "--memory", metavar="SIZE", parser=parse_size, help="Memory it may use, such as 512m (default 1g)."
    ),
]
Isolation = Annotated[
    ContainerIsolation,
    typer.Option(
        "--isolation",
        help="Which kernel it runs on: the host's, behind the container's barriers, or gVisor's own.",
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file", metavar="LOCAL[:PATH]", help="Put a copy of a file into the workspace; repeatable."
    ),
]
