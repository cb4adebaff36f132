"""What a caller can do about the sessions that are kept under a `session_id`."""

from dataclasses import dataclass

from aeolus_sandbox.sandboxes.kept import KeptItem, KeptStore


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A kernel, say, that is kept for the next call of its id, at a moment."""

    tool: str
    """The name of the tool that keeps it."""
    session_id: str
    image: str
    """The image of its container."""
    language: str | None
    """The language that it speaks, where there is one."""
    age_s: float
    """How long ago it was made, in seconds."""
    idle_s: float
    """How long nobody has used it, in seconds; 0 while somebody does."""
    is_busy: bool
    """Whether a call uses it or waits for it."""


class KeptSessions:
    """The sessions that a manager keeps between calls; see `SessionManager.kept`.

    One goes when it was not used for long, when it is old, when there are too many, and when it breaks. The next call
    of its id is told so (`environment_recreated`), unless it was closed or restarted here.
    """

    def __init__(self, store: KeptStore) -> None:
        self._store = store

    def list(self) -> "list[KeptSession]":
        """Return the sessions that are kept now, in the order of their names."""
        return [_session(item) for item in self._store.items()]

    async def restart(self, tool: str, session_id: str) -> None:
        """Give a session a new container, with the image and the limits of its first call, once nobody uses it.

        Variables, files and processes of the old one are gone; whoever asked for that is not told again.

        Raises:
            SessionClosed: No such session is kept.
            EngineError: No new container can be started; the next call of the id tries again.
        """
        await self._store.restart(kept_key(tool, session_id))

    async def close(self, tool: str, session_id: str) -> None:
        """Remove a session, once nobody uses it; without effect when there is none.

        Raises:
            EngineError: Its container could not be removed.
        """
        await self._store.drop(kept_key(tool, session_id))


def kept_key(tool: str, session_id: str) -> str:
    """Return the key under which a tool keeps a session; a tool's name has no colon."""
    return f"{tool}:{session_id}"


def _session(item: KeptItem) -> KeptSession:
    tool, _, session_id = item.key.partition(":")
    return KeptSession(
        tool=tool,
        session_id=session_id,
        image=item.image,
        language=item.language,
        age_s=item.age_s,
        idle_s=item.idle_s,
        is_busy=item.is_busy,
    )
