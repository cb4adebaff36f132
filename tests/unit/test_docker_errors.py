"""What an engine says when a runtime is not there, and what becomes of it."""

import aiodocker
import pytest

from aeolus_sandbox.engine.docker_errors import engine_call, missing_program, missing_runtime_program
from aeolus_sandbox.errors import EngineError, RuntimeMissing


@pytest.mark.parametrize(
    "words",
    ["Unknown runtime specified runsc", "unknown or invalid runtime name: runsc"],
    ids=["Docker 20.10", "Docker 23"],
)
async def test_an_unknown_runtime_is_named_with_what_to_do(words: str) -> None:
    with pytest.raises(RuntimeMissing, match=r"no runtime 'runsc'.*scripts/setup gvisor"):
        async with engine_call("create a container", address="unix:///x", timeout_s=1):
            raise aiodocker.DockerError(400, words)


@pytest.mark.parametrize(
    ("words", "is_runtime"),
    [
        (
            'looking up the specified runtime path: exec: "/usr/bin/x": stat /usr/bin/x: no such file or directory',
            True,
        ),
        (
            "(open log.json: no such file or directory): fork/exec /usr/bin/x: no such file or directory: unknown",
            True,
        ),
        ('unable to start container process: exec: "/x": stat /x: no such file or directory: unknown', False),
        ("starting sandbox: creating process: failed to load /x: no such file or directory: unknown", False),
    ],
)
def test_a_runtime_without_its_program_is_told_from_an_image_without_one(
    words: str, is_runtime: bool
) -> None:
    error = EngineError(words)
    assert missing_runtime_program(error) is is_runtime
    assert missing_program(error)
