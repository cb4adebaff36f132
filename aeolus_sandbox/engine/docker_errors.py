"""Where Docker's errors become ours: one context manager around every call to the engine."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiodocker
import aiohttp

from aeolus_sandbox.errors import EngineError, EngineTimeout, EngineUnavailable, ImageNotFound, RuntimeMissing

_CANNOT_CONNECT: Final = 900
"""aiodocker's own status for a connection that failed."""
_NOT_FOUND: Final = 404
_INNERMOST: Final = re.compile(r"\[([^][]+)\]+$")
"""aiodocker wraps the reason in two more, which name the address again."""
_UNKNOWN_RUNTIME: Final = re.compile(
    r"unknown (?:runtime specified|or invalid runtime name:?) (\S+)", re.IGNORECASE
)
"""What Docker says at the creation: until 20.10, and since 23."""
_NO_RUNTIME_PROGRAM: Final = re.compile(r"specified runtime path|fork/exec [^:]+: no such file")
"""What it says at the start where a runtime is registered whose program is not there."""


@asynccontextmanager
async def engine_call(what: str, *, address: str, timeout_s: float | None) -> AsyncIterator[None]:
    """Give a call to the engine a time limit (None: none), and map what goes wrong to our errors.

    Raises:
        EngineUnavailable: No engine answers, or the connection was lost.
        EngineTimeout: It took longer than `timeout_s`.
        ImageNotFound: The image is not there.
        RuntimeMissing: The engine has no such runtime.
        EngineError: The engine refused.
    """
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except aiodocker.DockerError as error:
        raise _mapped(what, address, error) from error
    except (json.JSONDecodeError, KeyError) as error:
        msg = f"could not {what}: what answers at {address!r} is not a Docker engine ({error!r})"
        raise EngineError(msg) from error
    except TimeoutError as error:
        msg = f"could not {what}: the engine at {address!r} did not answer within {timeout_s:g} s"
        raise EngineTimeout(msg) from error
    except (aiohttp.ClientError, OSError) as error:
        raise _unavailable(what, address, str(error) or type(error).__name__) from error


def missing_program(error: EngineError) -> bool:
    """Return whether the engine refused a start because the image lacks the program."""
    text = str(error)
    return "executable file not found" in text or "no such file or directory" in text


def runtime_missing(runtime: str, address: str, reason: str) -> RuntimeMissing:
    """Return the error that says that an engine cannot run what was asked for, and what to do."""
    advice = (
        "`scripts/setup gvisor` installs and registers it"
        if runtime == "runsc"
        else "register it with the engine"
    )
    return RuntimeMissing(f"the engine at {address!r} has no runtime {runtime!r} ({reason}): {advice}")


def missing_runtime_program(error: EngineError) -> bool:
    """Return whether the engine refused a start because the program of its runtime is not there."""
    return _NO_RUNTIME_PROGRAM.search(str(error)) is not None


def _mapped(what: str, address: str, error: aiodocker.DockerError) -> EngineError:
    message = str(error.message).strip()
    if error.status == _CANNOT_CONNECT:
        return _unavailable(what, address, message)
    if error.status == _NOT_FOUND and "no such image" in message.lower():
        return ImageNotFound(message)
    if unknown := _UNKNOWN_RUNTIME.search(message):
        return runtime_missing(unknown[1], address, message)
    return EngineError(f"could not {what}: {message} (HTTP status {error.status})")


def _unavailable(what: str, address: str, reason: str) -> EngineUnavailable:
    if innermost := _INNERMOST.search(reason):
        reason = innermost[1]
    advice = "start Docker (scripts/setup does), or set DOCKER_HOST"
    if "ermission denied" in reason:
        advice = "add yourself to the group that owns the socket (usually `docker`), or use rootless Docker"
    return EngineUnavailable(f"could not {what}: no engine answers at {address!r} ({reason}); {advice}")
