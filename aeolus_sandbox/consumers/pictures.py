"""Images in what tools stream and return: found, saved as files, and drawn where the terminal can."""

import base64
import binascii
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal

from pydantic import JsonValue

Protocol = Literal["kitty", "iterm2"]

MAX_PICTURES: Final = 20
"""How many are looked for in one chunk or result."""
MAX_BYTES: Final = 20 * 1024 * 1024
_MAX_DEPTH: Final = 6
_MAX_DRAWN_PIXELS: Final = 20_000_000
"""A larger one is not drawn: the terminal would decode it."""
_SUFFIXES: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
}
_DRAWN_BY: Final[dict[Protocol, frozenset[str]]] = {
    "kitty": frozenset({"image/png"}),
    "iterm2": frozenset({"image/png", "image/jpeg", "image/gif"}),
}
_KITTY_CHUNK: Final = 4096
"""https://sw.kovidgoyal.net/kitty/graphics-protocol/#remote-client"""


@dataclass(frozen=True, slots=True)
class Picture:
    """One image."""

    mime_type: str
    data: bytes
    size: tuple[int, int] | None
    """Width and height in pixels, as its first bytes say."""

    @property
    def in_words(self) -> str:
        """How large it is."""
        return f"{len(self.data)} bytes" if self.size is None else f"{self.size[0]} x {self.size[1]}"


def pictures_in(value: JsonValue, depth: int = 0) -> Iterator[Picture]:
    """Yield the images in a chunk or a result: objects with `mime_type` and `content`, as a `CodeChunk` has them."""
    if isinstance(value, dict):
        picture = _picture(value.get("mime_type"), value.get("content"))
        if picture is not None:
            yield picture
            return
    if depth < _MAX_DEPTH and isinstance(value, dict | list):
        found = 0
        for each in value.values() if isinstance(value, dict) else value:
            for picture in pictures_in(each, depth + 1):
                yield picture
                found += 1
                if found >= MAX_PICTURES:
                    return


def _picture(mime_type: JsonValue, content: JsonValue) -> Picture | None:
    if not (isinstance(mime_type, str) and isinstance(content, str) and mime_type in _SUFFIXES):
        return None
    if len(content) > MAX_BYTES * 4 // 3:
        return None
    # Only now: whoever shows no image does not pay for the tool.
    from aeolus_sandbox.tools.code_interpreter.images import image_size

    try:
        is_text = mime_type == "image/svg+xml"
        data = content.encode("utf-8", "replace") if is_text else base64.b64decode(content)
    except (binascii.Error, ValueError):
        return None
    return Picture(mime_type, data, image_size(mime_type, content)) if data else None


class PictureFolder:
    """Saves images as numbered files; it blocks."""

    def __init__(self, folder: Path | None) -> None:
        """Make one.

        Args:
            folder: Where they go; None: a new folder among the system's temporary files, made for the first image.
        """
        self._folder = folder
        self._number = 0

    def save(self, picture: Picture) -> Path:
        """Write an image to the next free number, and return where it is.

        Raises:
            OSError: It cannot be written.
        """
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="aeolus-plots-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        # Boundary: a name never comes from a tool, and no file or link that is there is written to.
        while True:
            self._number += 1
            path = self._folder / f"plot-{self._number:03d}{_SUFFIXES[picture.mime_type]}"
            try:
                with path.open("xb") as file:
                    file.write(picture.data)
            except FileExistsError:
                continue
            return path


def drawing_protocol(stream: IO[str], environment: Mapping[str, str] = os.environ) -> Protocol | None:
    """Return how the terminal behind a stream draws images; None: it cannot, or it is none.

    Multiplexers (tmux, screen) do not pass images on.
    """
    if not stream.isatty():
        return None
    terminal, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if "TMUX" in environment or terminal.startswith(("screen", "tmux")):
        return None
    if (
        "KITTY_WINDOW_ID" in environment
        or terminal in {"xterm-kitty", "xterm-ghostty"}
        or program == "ghostty"
    ):
        return "kitty"
    if program in {"iTerm.app", "WezTerm"} or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm2"
    return None


def drawn(picture: Picture, protocol: Protocol) -> str | None:
    """Return what makes a terminal draw an image; None: it cannot draw this one.

    Boundary: only an image whose first bytes say that it is one, and how large; its bytes travel as base64, which
    no sequence can break out of.
    """
    if picture.mime_type not in _DRAWN_BY[protocol] or picture.size is None:
        return None
    if picture.size[0] * picture.size[1] > _MAX_DRAWN_PIXELS:
        return None
    data = base64.b64encode(picture.data).decode("ascii")
    return _kitty(data) if protocol == "kitty" else _iterm2(data, len(picture.data))


def _kitty(data: str) -> str:
    pieces = [data[start : start + _KITTY_CHUNK] for start in range(0, len(data), _KITTY_CHUNK)]
    heads = ["a=T,f=100,q=2,", *[""] * (len(pieces) - 1)]  # shown at once, PNG, no answers
    more = [1] * (len(pieces) - 1) + [0]
    return "".join(
        f"\x1b_G{head}m={m};{piece}\x1b\\" for head, m, piece in zip(heads, more, pieces, strict=True)
    )


def _iterm2(data: str, size: int) -> str:
    # https://iterm2.com/documentation-images.html
    return f"\x1b]1337;File=inline=1;size={size};preserveAspectRatio=1:{data}\x07"
