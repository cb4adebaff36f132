"""The same containers as ours without this library: aiodocker's own calls on the same specification."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiodocker
from aiodocker.stream import Stream

from aeolus_sandbox import Limits, SandboxProfile
from aeolus_sandbox.engine.base import DEADLINE_LABEL, OWNER_LABEL
from aeolus_sandbox.engine.docker_config import container_config
from aeolus_sandbox.engine.image_catalog import resolve_image
from aeolus_sandbox.hardening import container_spec
from aeolus_sandbox.resources import shipped_folder
from aeolus_sandbox.sandboxes.owner import Owner

GREETING: Final = "echo hello"
"""What is run where the time until the first output counts."""
_FAR_FUTURE: Final = "4102444800"


def seccomp_profile() -> str:
    """Return the profile that a manager uses."""
    return (shipped_folder("seccomp") / "default.json").read_text("utf-8")


def config_of(image: str, argv: tuple[str, ...], *, tty: bool) -> dict[str, Any]:
    """Return the create call's body for a container that differs from a session's in its program alone."""
    # With these labels, a container that a killed benchmark leaves is reaped like every other.
    labels = {OWNER_LABEL: str(Owner.this_process()), DEADLINE_LABEL: _FAR_FUTURE}
    spec = container_spec(
        SandboxProfile(image=image, tty=tty),
        image=resolve_image(image),
        argv=argv,
        limits=Limits(),
        labels=labels,
        seccomp=seccomp_profile(),
    )
    return container_config(spec)


@asynccontextmanager
async def started(docker: aiodocker.Docker, config: Mapping[str, Any]) -> AsyncIterator[Stream]:
    """Create, attach to and start a container, and give its stream; it is removed afterwards."""
    container = await docker.containers.create(dict(config))
    try:
        async with container.attach(stdin=True, stdout=True, stderr=True) as stream:
            await container.start()
            yield stream
    finally:
        await container.delete(force=True, v=True)
