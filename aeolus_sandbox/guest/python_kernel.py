"""The Python kernel's own process: ipykernel, made to lose nothing and to leave words when it crashes.

Run by path (`python -P .../python_kernel.py -f CONNECTION_FILE`), so that none of our modules is importable in it.
"""

import faulthandler
import json
import os
import sys
import time
from typing import Any, Final

import zmq
from ipykernel.iostream import OutStream
from ipykernel.kernelapp import IPKernelApp
from jupyter_client import session as jupyter_session
from jupyter_client.jsonutil import json_clean, json_default

_FLUSH_S: Final = 0.0005


def pack_any_text(message: object) -> bytes:
    """Return the message as JSON in valid UTF-8.

    Jupyter's packer raises on a lone surrogate, and the output is lost:
    https://github.com/jupyter/notebook/issues/2680 . Here it becomes U+FFFD.
    """
    try:
        packed: bytes = jupyter_session.json_packer(message)
    except UnicodeEncodeError:
        text = json.dumps(json_clean(message), default=json_default, ensure_ascii=False, allow_nan=False)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    return packed


class FlushedOutStream(OutStream):
    """An output stream whose flush also gives the messaging thread the moment that it needs to write.

    Without it, what is printed and flushed just before the process is killed is lost one time in four.
    ipykernel waits as long at the end of every cell, printed or not; that is switched off in return.
    """

    def flush(self) -> None:
        """Send what was printed."""
        has_text = bool(getattr(self, "_buffers", True))
        super().flush()  # type: ignore[no-untyped-call]
        if has_text:
            time.sleep(_FLUSH_S)


class PythonKernelApp(IPKernelApp):
    """ipykernel with an output socket that waits for a slow reader, where ipykernel's drops messages."""

    def init_iopub(self, context: zmq.Context[Any]) -> None:
        """Make the output socket."""
        self.session.pack = pack_any_text
        # A socket option set on the context is the default of the sockets made next; with it the output thread
        # waits at the high-water mark: https://libzmq.readthedocs.io/en/latest/zmq_setsockopt.html
        context.setsockopt(zmq.XPUB_NODROP, 1)
        try:
            super().init_iopub(context)  # type: ignore[no-untyped-call]
        finally:
            context.sockopts.pop(zmq.XPUB_NODROP)


def main() -> None:
    """Run the kernel until it ends."""
    # ipykernel points descriptor 2 at the running cell, where a fault handler's words would die with the process:
    # keep the true one for them.
    faulthandler.enable(file=os.dup(2), all_threads=False)
    switches = [
        "--IPythonKernel._execute_sleep=0",
        f"--IPKernelApp.outstream_class={__name__}.FlushedOutStream",
    ]
    PythonKernelApp.launch_instance([*sys.argv[1:], *switches])


if __name__ == "__main__":
    main()
