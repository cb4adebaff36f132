"""What a tool gets from the manager when it starts: its limits, and the way to its containers."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from aeolus_sandbox.capabilities import NO_LOGS, ReadLogs
from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.profiles import SandboxProfile
from aeolus_sandbox.sandboxes.kept import KeptStore
from aeolus_sandbox.sandboxes.kept_sessions import kept_key
from aeolus_sandbox.sandboxes.launcher import Launcher
from aeolus_sandbox.sandboxes.lease import Lease
from aeolus_sandbox.sandboxes.preparation import PackageImages, PreparedImage
from aeolus_sandbox.streaming.filters import Filter, FilterChain, TextFilter
from aeolus_sandbox.streaming.sandbox import Process, Sandbox
from aeolus_sandbox.streaming.tool import IsolationMode, Kept, ToolContext


class SandboxContext:
    """The context of one session; see `streaming.tool.ToolContext` for the promises."""

    def __init__(
        self,
        *,
        lease: Lease,
        limits: Limits,
        isolation: IsolationMode,
        launcher: Callable[[], Awaitable[Launcher]],
        kept: KeptStore,
        namespace: str,
        images: PackageImages,
        filters: Sequence[Filter] = (),
        progress: str | None = None,
        log_access: ReadLogs = NO_LOGS,
    ) -> None:
        self.session_id = lease.session_id
        self.limits = limits
        self._lease = lease
        self._isolation = isolation
        self._launcher = launcher
        self._kept = kept
        self._namespace = namespace
        self._images = images
        self.filters = filters
        """What is taken out of the session's text, in this order."""
        self.progress = progress
        """How far an earlier attempt at the run came."""
        self.log_access = log_access
        """Which log files of the host the tool may read."""
        self._borrowed = AsyncExitStack()
        self._borrowed_keys: set[str] = set()

    async def park(self, profile: SandboxProfile) -> Sandbox:
        """Return a parked container; see `ToolContext.park`."""
        self._check_isolation()
        launcher = await self._launcher()
        return await launcher.park(profile, self.limits, self._lease, isolation=self._isolation)

    async def run(self, profile: SandboxProfile) -> Process:
        """Start the profile's program; see `ToolContext.run`."""
        self._check_isolation()
        launcher = await self._launcher()
        return await launcher.run(profile, self.limits, self._lease, isolation=self._isolation)

    def prepare_image(self, image: str, packages: Sequence[str]) -> PreparedImage:
        """Return an image with packages on top; see `ToolContext.prepare_image`."""
        self._check_isolation()
        return self._images.prepare(image, packages)

    def text_filter(self) -> TextFilter:
        """Return the session's filters; see `ToolContext.text_filter`."""
        return FilterChain(self.filters)

    async def keep(self, key: str, make: Callable[[ToolContext], Awaitable[Kept]]) -> Kept:
        """Return what is kept under a key; see `ToolContext.keep`."""
        self._check_isolation()
        full_key = kept_key(self._namespace, key)

        async def make_with(lease: Lease) -> Kept:
            return await make(self._with(lease))

        if full_key in self._borrowed_keys:
            return await self._kept.renew(full_key, make_with)
        kept = await self._borrowed.enter_async_context(self._kept.borrow(full_key, make_with))
        self._borrowed_keys.add(full_key)
        return kept

    def lend(self, key: str) -> AbstractAsyncContextManager[Kept]:
        """Lend what is kept under a key; see `ToolContext.lend`."""
        return self._kept.lend(kept_key(self._namespace, key))

    async def aclose(self) -> None:
        """Give back what was borrowed, and remove the session's own containers.

        Raises:
            EngineError: A container could not be removed.
        """
        await self._borrowed.aclose()
        await self._lease.aclose()

    def _with(self, lease: Lease) -> "SandboxContext":
        return SandboxContext(
            lease=lease,
            limits=self.limits,
            isolation=self._isolation,
            launcher=self._launcher,
            kept=self._kept,
            namespace=self._namespace,
            images=self._images,
            filters=self.filters,
            log_access=self.log_access,
        )

    def _check_isolation(self) -> None:
        if not self._isolation.uses_containers:
            msg = "this tool's isolation is in_process: set `isolation = IsolationMode.CONTAINER` to use containers"
            raise ConfigurationError(msg)
