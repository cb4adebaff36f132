"""Images with packages, found or built for a session while its reader hears how far that is."""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.engine.base import Engine
from aeolus_sandbox.errors import ConfigurationError

if TYPE_CHECKING:
    from aeolus_sandbox.engine.image_log import BuildProgress

_NEWS_KEPT: Final = 1000


class PackageImages:
    """Prepares images for the sessions of a manager, one build at a time: a build takes a thread, and there are few."""

    def __init__(self, engine: Engine, tasks: BackgroundTasks, *, locks: Path) -> None:
        self.engine = engine
        self.tasks = tasks
        self.locks = locks
        self.turn = asyncio.Lock()

    def prepare(self, image: str, packages: Sequence[str]) -> "PreparedImage":
        """Return an image to wait for; see `ToolContext.prepare_image`."""
        return PreparedImage(self, image, tuple(packages))


class PreparedImage:
    """One image that is asked for; see `streaming.sandbox.ImagePreparation` for the promises."""

    def __init__(self, images: PackageImages, image: str, packages: tuple[str, ...]) -> None:
        self._images = images
        self._image = image
        self._packages = packages
        self._news: deque[str] = deque(maxlen=_NEWS_KEPT)
        self._told = ""
        self._changed = asyncio.Event()
        self._cancel = threading.Event()
        self._in_turn = False
        self._loop = asyncio.get_running_loop()
        self._work: asyncio.Task[str] | None = None

    def __aiter__(self) -> "PreparedImage":
        return self

    async def __anext__(self) -> str:
        work = self._started()
        while not self._news:
            if work.done() or self._cancel.is_set():
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._news.popleft()

    async def reference(self) -> str:
        """Wait for the image and return its reference."""
        work = self._started()
        await asyncio.wait([work])
        return work.result()

    def cancel(self) -> None:
        """Stop the build; without effect when it is done."""
        self._cancel.set()
        self._changed.set()
        if self._work is not None and not self._in_turn:
            self._work.cancel()

    def _started(self) -> asyncio.Task[str]:
        """Return the work, which runs on in the background where its caller is cancelled: a build must clear away."""
        if self._work is None:
            self._work = self._images.tasks.start(
                self._obtain(), name=f"packages for {self._image}", awaited=True
            )
            self._work.add_done_callback(lambda _: self._changed.set())
        return self._work

    async def _obtain(self) -> str:
        found = await asyncio.to_thread(self._found)
        if found is not None:
            return found
        self._tell(f"adding {', '.join(self._packages)} to the image {self._image}")
        async with self._images.turn:
            self._in_turn = True
            return await asyncio.to_thread(self._built)

    def _found(self) -> str | None:
        # The SDK behind it is loaded by those alone who need it.
        from aeolus_sandbox.engine.package_images import PackageImageBuilder

        with PackageImageBuilder(self._address()) as builder:
            return builder.find(self._image, self._packages)

    def _built(self) -> str:
        from aeolus_sandbox.engine.package_images import PackageImageBuilder

        with PackageImageBuilder(self._address()) as builder:
            return builder.obtain(
                self._image,
                self._packages,
                locks=self._images.locks,
                progress=self._tell_progress,
                cancel=self._cancel,
            )

    def _address(self) -> str:
        address = self._images.engine.address
        if address is None:
            msg = "packages are built into images, and the engine of this manager builds none"
            raise ConfigurationError(msg)
        return address

    def _tell_progress(self, progress: "BuildProgress") -> None:
        from aeolus_sandbox.engine.package_images import news_of

        if news := news_of(progress):
            self._loop.call_soon_threadsafe(self._tell, news)

    def _tell(self, news: str) -> None:
        if news != self._told:
            self._news.append(news)
        self._told = news
        self._changed.set()
