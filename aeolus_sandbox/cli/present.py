"""How `run` shows what a tool streams: to people, or as one JSON object a line."""

import json
import sys
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import BaseModel

from aeolus_sandbox.cli.exits import say
from aeolus_sandbox.cli.sink import Sink
from aeolus_sandbox.streaming.chunks import OutputChunk
from aeolus_sandbox.streaming.screen import harmless
from aeolus_sandbox.tools.code_interpreter import CodeChunk, CodeResult
from aeolus_sandbox.tools.terminal import TerminalChunk, TerminalResult

_SUFFIXES: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
}


class Presenter(Protocol):
    """Shows one run; all calls block, and come one after the other."""

    def chunk(self, chunk: OutputChunk) -> None:
        """Show a chunk."""
        ...

    def result(self, result: CodeResult | TerminalResult) -> None:
        """Show how it ended."""
        ...


class ImageFolder:
    """Saves images as numbered files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def save(self, chunk: CodeChunk) -> Path:
        """Write an image to the next free number, and return where it is."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # Boundary: a name never comes from the container, and no file or link that is there is written to.
        suffix = _SUFFIXES.get(chunk.mime_type, ".bin")
        while True:
            self._number += 1
            path = self._folder / f"image-{self._number:03d}{suffix}"
            try:
                with path.open("xb") as file:
                    file.write(chunk.data)
            except FileExistsError:
                continue
            return path


class JsonLines:
    """Every chunk and then the result, each as one JSON object on a line of ASCII."""

    def __init__(self, images: ImageFolder | None) -> None:
        self._out = sys.stdout.buffer
        self._images = images

    def chunk(self, chunk: OutputChunk) -> None:
        """Write a chunk."""
        record: dict[str, Any] = {"type": "chunk", **chunk.model_dump(mode="json")}
        if isinstance(chunk, CodeChunk) and chunk.stream == "image" and self._images is not None:
            record["saved_as"] = str(self._images.save(chunk))
        self._write(record)

    def result(self, result: CodeResult | TerminalResult) -> None:
        """Write the result."""
        self._write({"type": "result", **result.model_dump(mode="json")})

    def _write(self, record: BaseModel | dict[str, Any]) -> None:
        # Escaped as ASCII it is harmless to a terminal too; a lone surrogate would be no valid JSON text.
        line = json.dumps(without_surrogates(record), ensure_ascii=True)
        self._out.write(line.encode("ascii") + b"\n")
        self._out.flush()


class ForPeople:
    """Text as it comes, images as files, errors and remarks on stderr."""

    def __init__(self, images: ImageFolder | None) -> None:
        self._stdout = Sink(sys.stdout)
        self._stderr = Sink(sys.stderr)
        self._images = images

    def chunk(self, chunk: OutputChunk) -> None:
        """Show a chunk."""
        if chunk.dropped_bytes:
            self._remark(
                f"{chunk.dropped_bytes} bytes of output were dropped here: they came faster than they were read"
            )
        if isinstance(chunk, TerminalChunk):
            (self._stderr if chunk.stream == "stderr" else self._stdout).write(chunk.data)
        elif isinstance(chunk, CodeChunk):
            self._code_chunk(chunk)

    def result(self, result: CodeResult | TerminalResult) -> None:
        """Say how it ended, where that is worth a word."""
        self._stdout.finish()
        self._stderr.finish()
        if result.status.reason != "exited":
            self._remark(f"ended: {result.status}")
        elif result.status.limit_hit is not None:
            self._remark(f"it went on, but a part of it hit a limit: {result.status}")

    def _code_chunk(self, chunk: CodeChunk) -> None:
        match chunk.stream:
            case "stdout":
                self._stdout.write(chunk.data)
            case "stderr":
                self._stderr.write(chunk.data)
            case "image":
                self._image(chunk)
            case "result" | "display":
                self._stdout.write_line(_as_plain_text(chunk))
            case "error":
                # The kernel has painted it; a file or pipe gets it plain.
                self._stderr.write_line(chunk.content if self._stderr.is_screen else harmless(chunk.content))
            case "input":
                self._remark(f"the code asks for input: {chunk.content}")
            case "status":
                self._remark(chunk.content)
        if chunk.omitted:
            self._remark(f"left out, as too large or nested too deeply: {', '.join(chunk.omitted)}")

    def _image(self, chunk: CodeChunk) -> None:
        size = f"{chunk.width} x {chunk.height}" if chunk.width else f"{len(chunk.data)} bytes"
        if self._images is None:
            self._remark(f"an image was not saved ({size}): --out DIR says where to")
        else:
            self._remark(f"saved {self._images.save(chunk)} ({size})")

    def _remark(self, text: str) -> None:
        self._stdout.end_line()
        self._stderr.end_line()
        say(harmless(text))


def _as_plain_text(chunk: CodeChunk) -> str:
    if chunk.mime_type == "text/plain":
        return chunk.content
    return chunk.alternatives.get("text/plain") or chunk.as_text()


def without_surrogates(value: Any) -> Any:
    """Return JSON-like data in which every text is valid Unicode."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {without_surrogates(key): without_surrogates(each) for key, each in value.items()}
        case list():
            return [without_surrogates(each) for each in value]
        case _:
            return value
