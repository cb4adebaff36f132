"""`CodeInterpreterTool`: code in a Jupyter kernel in a container, streamed as it runs."""

import asyncio
from typing import ClassVar, Final

from aeolus_sandbox.capabilities import CapabilityKind
from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.profiles import SandboxProfile
from aeolus_sandbox.streaming.policies import Policy, Window
from aeolus_sandbox.streaming.tool import (
    CancelToken,
    IsolationMode,
    Kept,
    StreamingTool,
    StreamingToolHandle,
    ToolContext,
)
from aeolus_sandbox.tools.code_interpreter.cell import Cell
from aeolus_sandbox.tools.code_interpreter.kernel import Kernel
from aeolus_sandbox.tools.code_interpreter.languages import language_named
from aeolus_sandbox.tools.code_interpreter.models import CodeChunk, CodeInterpreterInput, CodeResult
from aeolus_sandbox.tools.files import load_files

_CONTAINER_LIMITS: Final = ("memory_bytes", "cpus", "pids", "disk_bytes", "tmp_bytes", "open_files")
"""Limits that a container has from its start; the others are each call's own."""


class CodeInterpreterTool(StreamingTool[CodeInterpreterInput, CodeChunk, CodeResult]):
    """Run code in a Jupyter kernel in a container."""

    name: ClassVar[str] = "code_interpreter"
    description: ClassVar[str] = (
        "Run Python code in an isolated Jupyter kernel without network; numpy, pandas and matplotlib are there. "
        "Printed text, the last value, plots and errors come back. Variables are kept between calls with one session_id."
    )
    Input = CodeInterpreterInput
    OutputChunk = CodeChunk
    Final = CodeResult
    policy: Policy = Window(max_chunks=100)
    isolation = IsolationMode.CONTAINER
    required_capability = CapabilityKind.RUN_CODE

    def __init__(self, *, image: str | None = None) -> None:
        """Configure the tool.

        Args:
            image: An image with the kernel host inside to use for every language; None: the language's own.
        """
        self.image = image

    async def start(
        self, tool_input: CodeInterpreterInput, context: ToolContext
    ) -> StreamingToolHandle[CodeChunk, CodeResult]:
        """Start the code; see `StreamingTool.start`.

        Raises:
            SessionBroken: The kernel does not boot, or takes no input.
            GuestProtocolError: The image holds no kernel host of ours.
        """
        profile = self._profile(tool_input.language)
        files = await asyncio.to_thread(load_files, tool_input.files, max_bytes=context.limits.disk_bytes)
        kernel = await self._kernel(profile, tool_input, context)
        await kernel.write_files(files)
        op = await kernel.execute(tool_input.code)
        cell = Cell(
            kernel, op, keeps_kernel=tool_input.session_id is not None, new_filter=context.text_filter
        )
        return StreamingToolHandle(
            chunks=cell.chunks(), finalize=cell.result(), cancel=CancelToken(cell.stop)
        )

    def _profile(self, language: str) -> SandboxProfile:
        found = language_named(language)
        return SandboxProfile(image=self.image or found.image, argv=("aeolus-kernel-host", found.name))

    async def _kernel(
        self, profile: SandboxProfile, tool_input: CodeInterpreterInput, context: ToolContext
    ) -> Kernel:
        async def boot(within: ToolContext) -> Kernel:
            kernel = Kernel(await within.run(profile), profile, within.limits)
            await kernel.wait_ready()
            return kernel

        if tool_input.session_id is None:
            return await boot(context)
        kept: Kept = await context.keep(tool_input.session_id, boot)
        assert isinstance(kept, Kernel)
        _check_suits(kept, profile, context.limits, tool_input.session_id)
        if kept.is_booting:
            await kept.wait_ready()
        return kept


def _check_suits(kernel: Kernel, profile: SandboxProfile, limits: Limits, session_id: str) -> None:
    """Refuse to pass off a kernel that is kept already as one that was asked for otherwise."""
    if kernel.profile != profile:
        msg = (
            f"session_id {session_id!r} names a kernel of image {kernel.profile.image!r} ({kernel.profile.argv}), "
            f"and not of {profile.image!r} ({profile.argv}): use another session_id"
        )
        raise ConfigurationError(msg)
    for name in _CONTAINER_LIMITS:
        has, asked = getattr(kernel.limits, name), getattr(limits, name)
        # Boundary: a limit that cannot be kept any more is refused, and not passed over.
        if has > asked:
            msg = (
                f"{name}={asked!r} was asked for, but the kernel that session_id {session_id!r} names runs with "
                f"{has!r} since it was started: use another session_id"
            )
            raise ConfigurationError(msg)
