"""`CodeInterpreterTool`: code in a Jupyter kernel in a container, streamed as it runs."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

from aeolus_sandbox.capabilities import CapabilityKind
from aeolus_sandbox.engine.packages import derives_from
from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.guest import frames
from aeolus_sandbox.limits import CONTAINER_LIMITS, Limits
from aeolus_sandbox.profiles import SandboxProfile, WarmStart
from aeolus_sandbox.streaming.policies import Policy, Window
from aeolus_sandbox.streaming.tool import (
    CancelToken,
    IsolationMode,
    Kept,
    StreamingTool,
    StreamingToolHandle,
    ToolContext,
    in_container,
)
from aeolus_sandbox.tools.code_interpreter.analysis import CodeFinding, CodePolicy, enforce
from aeolus_sandbox.tools.code_interpreter.cell import Cell
from aeolus_sandbox.tools.code_interpreter.kernel import Kernel
from aeolus_sandbox.tools.code_interpreter.languages import Language, language_named
from aeolus_sandbox.tools.code_interpreter.models import CodeChunk, CodeInterpreterInput, CodeResult
from aeolus_sandbox.tools.code_interpreter.preparing import handle_after
from aeolus_sandbox.tools.code_interpreter.workspace import (
    LISTING_TIMEOUT_S,
    STOPPED_LISTING_TIMEOUT_S,
    KernelFiles,
    list_changes,
    write_files,
)
from aeolus_sandbox.tools.files import check_files

# Operation 0 is nobody's: a kernel counts its own from 1, so that no answer can be taken for one of theirs.
_ASK: Final = frames.encode_frame(frames.Ping(op=0))
_ANSWER: Final = frames.encode_frame(frames.Done(op=0, status="ok"))


class CodeInterpreterTool(StreamingTool[CodeInterpreterInput, CodeChunk, CodeResult]):
    """Run code in a Jupyter kernel in a container."""

    name: ClassVar[str] = "code_interpreter"
    description: ClassVar[str] = (
        "Run code in an isolated Jupyter kernel without network: python (with numpy, pandas, matplotlib), javascript, "
        "typescript, bash, r or wasm. Printed text, the last value, plots, errors and the names of written files come "
        "back. Variables and files are kept between calls with one session_id."
    )
    Input = CodeInterpreterInput
    OutputChunk = CodeChunk
    Final = CodeResult
    policy: Policy = Window(max_chunks=100)
    isolation: IsolationMode = IsolationMode.CONTAINER
    required_capability = CapabilityKind.RUN_CODE

    def __init__(
        self,
        *,
        image: str | None = None,
        code_policy: CodePolicy = CodePolicy.WARN,
        isolation: IsolationMode = IsolationMode.CONTAINER,
    ) -> None:
        """Configure the tool.

        Args:
            image: An image with the kernel host inside to use for every language; None: the language's own.
            code_policy: What to do with code that looks dangerous.
            isolation: Which operating system's kernel its containers run on.

        Raises:
            ConfigurationError: The isolation knows no containers.
        """
        self.isolation = in_container(isolation, self.name)
        self.image = image
        self.code_policy = code_policy

    async def start(
        self, tool_input: CodeInterpreterInput, context: ToolContext
    ) -> StreamingToolHandle[CodeChunk, CodeResult]:
        """Start the code; see `StreamingTool.start`.

        Raises:
            CodeRefused: The code looks dangerous and the policy is to deny.
            SessionBroken: The kernel does not boot, or takes no input.
            GuestProtocolError: The image holds no kernel host of ours.
        """
        language = language_named(tool_input.language)
        profile = self._profile(language)
        findings = await enforce(tool_input.code, language.name, self.code_policy)
        if not tool_input.packages:
            return await self._begin(profile, tool_input, context, findings)
        if self.image is not None:
            msg = f"packages can be added to a language's own image, and not to {self.image!r}"
            raise ConfigurationError(msg)

        async def begin(image: str) -> StreamingToolHandle[CodeChunk, CodeResult]:
            return await self._begin(
                profile.model_copy(update={"image": image}), tool_input, context, findings
            )

        preparation = context.prepare_image(profile.image, tool_input.packages)
        return handle_after(preparation, begin, takes_input=tool_input.allow_stdin)

    def requires(self, tool_input: CodeInterpreterInput) -> Sequence[CapabilityKind]:
        """Return all that must have been granted; packages need more than code alone."""
        # Boundary: the build that packages need has network, unlike all that runs afterwards.
        more = (CapabilityKind.INSTALL_PACKAGES,) if tool_input.packages else ()
        return (*super().requires(tool_input), *more)

    def profile(self, tool_input: CodeInterpreterInput) -> SandboxProfile | None:
        """Return in what container the code runs; None where packages make an image of their own."""
        return None if tool_input.packages else self._profile(language_named(tool_input.language))

    async def _begin(
        self,
        profile: SandboxProfile,
        tool_input: CodeInterpreterInput,
        context: ToolContext,
        findings: tuple[CodeFinding, ...],
    ) -> StreamingToolHandle[CodeChunk, CodeResult]:
        kernel, op = await self._executed(profile, tool_input, context)
        cell = Cell(
            kernel,
            op,
            keeps_kernel=tool_input.session_id is not None,
            new_filter=context.text_filter,
            findings=findings,
        )
        kept_as = tool_input.session_id
        workspace = KernelFiles(kernel, None if kept_as is None else partial(context.lend, kept_as))
        return StreamingToolHandle(
            chunks=cell.chunks(),
            finalize=_result(cell, kernel, workspace),
            stdin=cell.input if tool_input.allow_stdin else None,
            cancel=CancelToken(cell.stop),
            files=workspace,
        )

    async def _executed(
        self, profile: SandboxProfile, tool_input: CodeInterpreterInput, context: ToolContext
    ) -> tuple[Kernel, int]:
        """Have a kernel execute the code, and return it with the operation; one that was lost unnoticed is replaced."""
        given, max_bytes = tool_input.files, context.limits.disk_bytes
        files = await asyncio.to_thread(check_files, given, max_bytes=max_bytes) if given else []
        while True:  # not for long: only one that was kept can be lost unnoticed
            kernel = await self._kernel(profile, tool_input, context)
            # Files are many requests: they go to a guest that is known to be there.
            if files and not await kernel.reaches():
                continue
            await write_files(kernel, files)
            op = await kernel.execute(
                tool_input.code, allow_stdin=tool_input.allow_stdin, chart_data=tool_input.chart_data
            )
            if op is not None:
                return kernel, op

    def _profile(self, language: Language) -> SandboxProfile:
        argv = ("aeolus-kernel-host", language.name)
        warm = WarmStart(argv=(*argv, "--warm"), ask=_ASK, answer=_ANSWER)
        return SandboxProfile(image=self.image or language.image, argv=argv, warm=warm)

    async def _kernel(
        self, profile: SandboxProfile, tool_input: CodeInterpreterInput, context: ToolContext
    ) -> Kernel:
        async def boot(within: ToolContext) -> Kernel:
            kernel = Kernel(await within.run(profile), profile, within.limits, isolation=self.isolation)
            await kernel.wait_ready()
            return kernel

        if tool_input.session_id is None:
            return await boot(context)
        kept: Kept = await context.keep(tool_input.session_id, boot)
        assert isinstance(kept, Kernel)
        if not tool_input.packages and derives_from(kept.profile.image, profile.image):
            profile = kept.profile
        _check_suits(kept, profile, self.isolation, context.limits, tool_input.session_id)
        return kept


async def _result(cell: Cell, kernel: Kernel, workspace: KernelFiles) -> CodeResult:
    """Return how the code ended and which files it has changed."""
    result = await cell.result()
    in_time = result.status.reason == "exited"
    listing = await list_changes(
        kernel,
        timeout_s=LISTING_TIMEOUT_S if in_time else STOPPED_LISTING_TIMEOUT_S,
        promised=cell.promised_changes,
    )
    workspace.note(listing)
    update = {
        "artifacts": listing.artifacts,
        "artifacts_left_out": listing.left_out,
        "artifacts_complete": listing.complete,
    }
    return result.model_copy(update=update)


def _check_suits(
    kernel: Kernel, profile: SandboxProfile, isolation: IsolationMode, limits: Limits, session_id: str
) -> None:
    """Refuse to pass off a kernel that is kept already as one that was asked for otherwise."""
    # Boundary: a session that began on the host's kernel is not one of gVisor's because it is asked for as one.
    if kernel.isolation is not isolation:
        msg = (
            f"session_id {session_id!r} names a kernel whose isolation is {kernel.isolation.value}, and not "
            f"{isolation.value}: use another session_id"
        )
        raise ConfigurationError(msg)
    if kernel.profile != profile:
        msg = (
            f"session_id {session_id!r} names a kernel of image {kernel.profile.image!r} ({kernel.profile.argv}), "
            f"and not of {profile.image!r} ({profile.argv}): use another session_id"
        )
        raise ConfigurationError(msg)
    for name in CONTAINER_LIMITS:
        has, asked = getattr(kernel.limits, name), getattr(limits, name)
        # Boundary: a limit that cannot be kept any more is refused, and not passed over.
        if has > asked:
            msg = (
                f"{name}={asked!r} was asked for, but the kernel that session_id {session_id!r} names runs with "
                f"{has!r} since it was started: use another session_id"
            )
            raise ConfigurationError(msg)
