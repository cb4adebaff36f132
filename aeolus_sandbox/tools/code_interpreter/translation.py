"""From the guest's frames to chunks: what is shown of a MIME bundle, and what is shown twice only once."""

from collections import OrderedDict
from hashlib import blake2b
from typing import Final

from aeolus_sandbox.tools.code_interpreter import replies
from aeolus_sandbox.tools.code_interpreter.bundles import lines_of, unpack
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
            case replies.Display():
                return self._shown(reply)
            case replies.Result():
                return self._shown(reply)
            case replies.Error(op=op, name=name, value=value):
                lines, complete = lines_of(reply.traceback)
                return CodeChunk(
                    stream="error",
                    content="\n".join(lines) or f"{name}: {value}",
                    background=op != self._op,
                    truncated=reply.truncated or not complete,
                )
            case replies.InputRequest(op=op, prompt=prompt, password=password) if op == self._op:
                return CodeChunk(stream="input", content=prompt, password=password)
            case _:
                return None

    def _shown(self, reply: replies.Display | replies.Result) -> CodeChunk | None:
        bundle = unpack(reply.data, reply.metadata, reply.omitted)
        mime = bundle.richest
        if mime is None:
            return self._nothing(reply) if bundle.truncated else None
        update = isinstance(reply, replies.Display) and reply.update
        picture = mime.startswith("image/")
        if picture and not self._is_new_image(bundle.entries[mime]) and not update:
            return None
        size = bundle.size(mime) if picture else None
        return CodeChunk(
            stream="image" if picture else _stream_of(reply),
            content=bundle.entries.pop(mime),
            mime_type=mime,
            alternatives=bundle.entries,
            metadata=bundle.metadata,
            width=size and size.width,
            height=size and size.height,
            omitted=bundle.omitted,
            truncated=bundle.truncated,
            display_id=reply.display_id if isinstance(reply, replies.Display) else None,
            update=update,
            background=reply.op != self._op,
        )

    def _nothing(self, reply: replies.Display | replies.Result) -> CodeChunk:
        content = "[left out: a display of types that cannot be shown]"
        return CodeChunk(
            stream=_stream_of(reply), content=content, truncated=True, background=reply.op != self._op
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


def _stream_of(reply: replies.Display | replies.Result) -> CodeStream:
    return "display" if isinstance(reply, replies.Display) else "result"
