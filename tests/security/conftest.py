"""A way to ask untrusted code what it can reach."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from aeolus_sandbox import SessionManager, TerminalTool
from tests.integration.running import run_command

Probe = Callable[..., Awaitable[Any]]

ERRNO_OF: Final = """
import os, errno
def tried(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    return "allowed"
"""
MOUNTS: Final = """
mounts = {}
for line in open("/proc/self/mountinfo"):
    left, right = line.split(" - ")
    _, _, _, root, point, options = left.split()[:6]
    mounts[point] = {"root": root, "options": options.split(","), "type": right.split()[0], "source": right.split()[1]}
"""


@pytest.fixture
def probe(manager: SessionManager) -> Probe:
    """Run Python code in a sandbox, and give what it assigns to `answer`."""

    async def ask(code: str, *, image: str = "shell", **settings: Any) -> Any:
        program = f"import json\n{code}\nprint(json.dumps(answer))"
        outcome = await run_command(
            manager, ("python3", "-c", program), tool=TerminalTool(image=image), tty=False, **settings
        )
        assert outcome.result.status.ok, (outcome.stdout, outcome.stderr)
        return json.loads(outcome.stdout)

    return ask
