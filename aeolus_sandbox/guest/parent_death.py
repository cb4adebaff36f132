"""Ties a kernel's life to that of the guest program, without waking up to look.

It is run by path too, beside `python_kernel`, and imports nothing of ours.
"""

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent() -> None:
    """Have this process killed when its parent ends, however that ends (prctl(2), `PR_SET_PDEATHSIG`)."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it ended meanwhile
        os._exit(1)
