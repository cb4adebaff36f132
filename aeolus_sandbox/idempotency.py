"""Runs that are not done twice: each has a key, is recorded before it starts, and its result when it is there.

Who else has the same key is told apart by the record: its process lives (then its result is waited for), or it is
gone (then what it left is removed, and the run is taken over where the tool may run again).
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, SecretBytes, SecretStr

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import CheckpointBusy, ConfigurationError, RunInterrupted
from aeolus_sandbox.sandboxes.owner import Owner
from aeolus_sandbox.storage.checkpoints import Checkpoints, Claimed, Running, Stored

T = TypeVar("T")

LEASE_S: Final = 60.0
"""How long a process that seems to live may give no sign of life before its run is taken over."""
BEAT_S: Final = 5.0
"""How often a process gives one."""
POLL_S: Final = 0.25
"""How often a waiting process looks for the other's result."""


class Run:
    """A run that is ours to do; see `RunRecord`."""

    is_replay = False

    def __init__(self, runs: "IdempotentRuns", key: str, claimed: Claimed) -> None:
        self.key = key
        self.attempt = claimed.attempt
        """Counts from 1; more than 1: an earlier attempt never came to a result."""
        self.progress = claimed.progress
        self._runs = runs

    async def store_progress(self, progress: str) -> None:
        """Keep how far it has come; see `RunRecord.store_progress`."""
        checkpoints, owner = self._runs.checkpoints, self._runs.owner
        await checkpoints.store_progress(self.key, owner=owner, attempt=self.attempt, progress=progress)

    async def store(self, final: BaseModel) -> None:
        """Keep the result; see `RunRecord.store`."""
        text = final.model_dump_json(round_trip=True)
        await self._runs.checkpoints.store(self.key, owner=self._runs.owner, attempt=self.attempt, final=text)
        self._runs.note_end(self)

    async def give_up(self) -> None:
        """Say that it ended without a result; see `RunRecord.give_up`."""
        await self._runs.checkpoints.give_up(self.key, owner=self._runs.owner, attempt=self.attempt)
        self._runs.note_end(self)

    async def forget(self) -> None:
        """Say that nothing of it has started."""
        await self._runs.checkpoints.forget(self.key, owner=self._runs.owner, attempt=self.attempt)
        self._runs.note_end(self)


class Replay:
    """A run that has its result already; see `RunRecord`."""

    is_replay = True
    progress = None

    def __init__(self, key: str, final: str) -> None:
        self.key = key
        self.final = final
        """The result as JSON."""

    async def store_progress(self, progress: str) -> None:
        """Do nothing: it has its result."""

    async def store(self, final: BaseModel) -> None:
        """Do nothing: it is stored."""

    async def give_up(self) -> None:
        """Do nothing: it is stored."""


class IdempotentRuns:
    """The runs of one manager that have keys."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        *,
        owner: str,
        tasks: BackgroundTasks,
        remove_containers: Callable[[str], Awaitable[object]],
    ) -> None:
        """Begin with none.

        Args:
            checkpoints: Where they are recorded.
            owner: This manager's label.
            tasks: For what must come to its end.
            remove_containers: Removes the containers that carry a key.
        """
        self.checkpoints = checkpoints
        self.owner = owner
        self._tasks = tasks
        self._remove_containers = remove_containers
        self._active: set[Run] = set()
        self._beating: asyncio.TimerHandle | None = None

    async def begin(
        self,
        key: str,
        *,
        tool_name: str,
        tool_input: BaseModel,
        may_repeat: bool,
        has_containers: bool,
        wait_s: float,
    ) -> Run | Replay:
        """Return the run that this key stands for: ours to do, or with its result.

        Waits while another process, or another session of this one, is at it.

        Args:
            key: The idempotency key.
            tool_name: The tool's name.
            tool_input: What it is given; only a hash of it is kept.
            may_repeat: Whether it may run again where nobody knows whether it ran.
            has_containers: Whether it may have left containers.
            wait_s: How long the other one is waited for, in seconds.

        Raises:
            CheckpointConflict: The key belongs to another tool or input.
            CheckpointBusy: The other one has not ended in time.
            RunInterrupted: It began before, never ended, and must not be repeated.
            StorageError: It cannot be recorded; nothing has started.
        """
        digest = await asyncio.to_thread(input_hash, tool_input)
        watch = _Watch()
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            claim = await self._claimed(
                self.checkpoints.claim(
                    key, tool_name=tool_name, input_hash=digest, owner=self.owner, may_repeat=may_repeat
                ),
                key,
            )
            match claim:
                case Stored(final):
                    return Replay(key, final)
                case Claimed():
                    return await self._ours(key, claim, has_containers=has_containers)
                case Running() if await watch.is_lost(claim):
                    taken = await self._take_over(
                        key, claim, may_repeat=may_repeat, has_containers=has_containers
                    )
                    if taken is not None:
                        return await self._ours(key, taken, has_containers=has_containers)
                case Running() if asyncio.get_running_loop().time() > deadline:
                    msg = f"the run {key!r} of the tool {tool_name!r} is still going on elsewhere: try again later"
                    raise CheckpointBusy(msg)
            await asyncio.sleep(POLL_S)

    def note_end(self, run: Run) -> None:
        """Say that a run needs no more signs of life."""
        self._active.discard(run)

    def close(self) -> None:
        """End the signs of life."""
        if self._beating is not None:
            self._beating.cancel()

    async def _take_over(
        self, key: str, seen: Running, *, may_repeat: bool, has_containers: bool
    ) -> Claimed | None:
        taking = self.checkpoints.take_over(key, seen=seen, owner=self.owner, may_repeat=may_repeat)
        try:
            return await self._claimed(taking, key)
        except RunInterrupted:
            if has_containers:
                await self._remove_containers(key)
            raise

    async def _ours(self, key: str, claimed: Claimed, *, has_containers: bool) -> Run:
        run = Run(self, key, claimed)
        self._active.add(run)
        if self._beating is None:
            self._beat_later()
        if claimed.attempt > 1 and has_containers:
            try:
                await self._remove_containers(key)
            except BaseException:
                self._tasks.start(run.give_up(), name=f"give up the run {key}")
                raise
        return run

    async def _claimed(self, claiming: Coroutine[Any, Any, T], key: str) -> T:
        """Wait for a claim; one that a cancelled caller does not get is taken back."""
        task = self._tasks.start(claiming, name=f"claim the run {key}", awaited=True)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            self._tasks.start(self._unclaim(task, key), name=f"take back the run {key}")
            raise
        return task.result()

    async def _unclaim(self, task: asyncio.Task[Any], key: str) -> None:
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None and isinstance(task.result(), Claimed):
            await Run(self, key, task.result()).forget()

    def _beat_later(self) -> None:
        self._beating = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        self._beating = None
        if self._active:
            self._tasks.start(self.checkpoints.beat(self.owner), name="sign of life")
            self._beat_later()


class _Watch:
    """Tells whether another process that has a run is gone, by its process and by its signs of life."""

    def __init__(self) -> None:
        self._seen: Running | None = None
        self._since = 0.0

    async def is_lost(self, running: Running) -> bool:
        """Return whether the owner is gone, or has given no sign of life for `LEASE_S` since we look."""
        now = asyncio.get_running_loop().time()
        if running != self._seen:
            self._seen, self._since = running, now
        return now - self._since > LEASE_S or await asyncio.to_thread(_is_gone, running.owner)


def _is_gone(label: str) -> bool:
    try:
        return Owner.parse(label).liveness() == "gone"
    except ConfigurationError:  # another version's: only its signs of life count
        return False


def input_hash(tool_input: BaseModel) -> str:
    """Return a hash by which two inputs are the same; files are read, because their content counts and not their path.

    Raises:
        OSError: A file cannot be read.
    """
    canonical = json.dumps(_plain(tool_input.model_dump()), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {json.dumps(_plain(key), sort_keys=True): _plain(each) for key, each in value.items()}
        case set() | frozenset():
            return sorted((_plain(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
        case list() | tuple():
            return [_plain(each) for each in value]
        case bytes() | bytearray():
            return {"sha256": hashlib.sha256(value).hexdigest()}
        case Path() if value.is_file():
            with value.open("rb") as file:
                return {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}
        case SecretStr() | SecretBytes():
            return _plain(value.get_secret_value())
        case BaseModel():
            return _plain(value.model_dump())
        case _:
            return f"{type(value).__qualname__}({value})"
