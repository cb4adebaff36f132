"""From the guest's frames to chunks: what is shown of a MIME bundle, and what is shown twice only once."""

from collections import OrderedDict
from hashlib import blake2b
from typing import Final

import msgspec

from aeolus_sandbox.tools.code_interpreter import replies
from aeolus_sandbox.tools.code_interpreter.models import CodeChunk, CodeStream

_IMAGES_REMEMBERED: Final = 1000
"""How many images of one cell are known again: enough for any cell, and no room for a flood of them."""


class Translator:
    """Makes the chunks of one cell."""

    def __init__(self, op: int) -> None:
        self._op = op
        self._images: OrderedDict[bytes, None] = OrderedDict()

    def chunk(self, reply: replies.Reply) -> CodeChunk | None:
        """Return the chunk for a reply; None where it is none, or shows an image again.

        Raises:
            FrameError: It holds what no guest of ours sends.
        """
        match reply:
            case replies.Stream(op=op, name=name, text=text):
                stream: CodeStream = "stderr" if name == "stderr" else "stdout"
                return CodeChunk(stream=stream, content=text, background=op != self._op)
            case replies.Display(op=op, data=data, display_id=display_id, update=update):
                return self._bundle("display", data, op=op, display_id=display_id, update=update)
            case replies.Result(op=op, data=data):
                return self._bundle("result", data, op=op)
            case replies.Error(op=op, name=name, value=value, traceback=traceback):
                content = "\n".join(replies.lines_of(traceback)) or f"{name}: {value}"
                return CodeChunk(stream="error", content=content, background=op != self._op)
            case _:
                return None

    def _bundle(
        self,
        stream: CodeStream,
        data: msgspec.Raw,
        *,
        op: int,
        display_id: str | None = None,
        update: bool = False,
    ) -> CodeChunk | None:
        texts = replies.entries_of(data)
        mime = next((known for known in replies.PREFERRED_TYPES if known in texts), next(iter(texts), None))
        if mime is None:
            if not bytes(data).strip(b"{} \t\r\n"):
                return None
            mime, texts = "text/plain", {"text/plain": "[left out: a display of types that cannot be shown]"}
        content = texts.pop(mime)
        if mime.startswith("image/"):
            if not self._is_new_image(content) and not update:
                return None
            stream = "image"
        return CodeChunk(
            stream=stream,
            content=content,
            mime_type=mime,
            alternatives=texts,
            display_id=display_id,
            update=update,
            background=op != self._op,
        )

    def _is_new_image(self, content: str) -> bool:
        # A figure that is a cell's last value is sent as its result and again as a display of the plot library.
        digest = blake2b(content.strip().encode("utf-8", "replace"), digest_size=16).digest()
        if digest in self._images:
            return False
        self._images[digest] = None
        if len(self._images) > _IMAGES_REMEMBERED:
            self._images.popitem(last=False)
        return True
