"""The state file, and files like it: the one door to SQLite.

One file for all processes of a user, in WAL mode (https://sqlite.org/wal.html): readers do not wait for the writer,
writers wait for each other. What a call of `write` returned from has reached the disk.
"""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from aeolus_sandbox.errors import AeolusError, StorageBusy, StorageError
from aeolus_sandbox.storage.database_errors import storage_error
from aeolus_sandbox.storage.schema import MIGRATIONS, STATE_FILE, FileKind, Migration

T = TypeVar("T")
Row = dict[str, Any]
Value = str | bytes | int | float | None

BUSY_TIMEOUT_S: Final = 5.0
"""How long a write waits for another process's."""
ANSWER_TIMEOUT_S: Final = 60.0
"""How long a caller waits in all: a disk on a network can hang."""
_RETRY_S: Final = 0.01

_creating = threading.Lock()


class Transaction:
    """One transaction while it lasts; values stand in the SQL as `:name`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, /, **values: Value) -> list[Row]:
        """Return the rows of a query, each by its columns' names."""
        cursor = self._connection.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def row(self, sql: str, /, **values: Value) -> Row | None:
        """Return the first row of a query, or None."""
        return next(iter(self.rows(sql, **values)), None)

    def change(self, sql: str, /, **values: Value) -> int:
        """Run a statement that changes rows, and return how many it changed."""
        return self._connection.execute(sql, values).rowcount


class Database:
    """The file at a path, by default a state file; it is opened, and made where there is none, by the first use.

    A failure never costs what is stored: a transaction is done wholly or not at all, and the next call tries anew.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        kind: FileKind = STATE_FILE,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        self.path = path.absolute()
        self._busy_timeout_s = busy_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._kind = kind
        self._migrations = migrations
        # Its one thread is queue and lock at once: a transaction whose caller is cancelled ends there all the same.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="aeolus-state")
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        self._is_closed = False

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work`, in a thread, makes of one consistent state of the file.

        Raises:
            StorageBusy: Another process holds it locked.
            StorageError: It cannot be read.
        """
        return await self._run("DEFERRED", work)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` returns, once all its changes are on the disk; what it raises undoes them.

        It runs in a thread. When the caller is cancelled, the changes are made wholly or not at all: whoever must
        know which runs the call in `BackgroundTasks`.

        Raises:
            StorageBusy: Another process holds the file locked.
            StorageFull: There is no room.
            StorageError: It cannot be written.
        """
        return await self._run("IMMEDIATE", work)

    async def aclose(self) -> None:
        """Close the file, after what is under way; without effect when it is closed."""
        if self._is_closed:
            return
        self._is_closed = True
        closing = asyncio.wrap_future(self._thread.submit(self._close))
        self._thread.shutdown(wait=False)
        await asyncio.wait([closing], timeout=self._answer_timeout_s)

    async def _run(self, mode: Literal["DEFERRED", "IMMEDIATE"], work: Callable[[Transaction], T]) -> T:
        if self._is_closed:
            msg = f"the {self._kind.name} {str(self.path)!r} is closed"
            raise StorageError(msg)
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                return await asyncio.wrap_future(self._thread.submit(self._transact, mode, work))
        except TimeoutError as error:
            msg = (
                f"the {self._kind.name} {str(self.path)!r} has not answered in {self._answer_timeout_s:g} s, and whether "
                "the change was made is not known: see whether its disk hangs"
            )
            raise StorageBusy(msg) from error

    # In the thread.

    def _transact(self, mode: str, work: Callable[[Transaction], T]) -> T:
        try:
            with _transaction(self._open(), mode) as transaction:
                return work(transaction)
        except AeolusError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise storage_error(error, self.path, kind=self._kind.name) from error

    def _open(self) -> sqlite3.Connection:
        """Return the connection, a new one when the file was removed or replaced: the old one writes to no file."""
        if self._connection is None or self._opened != _identity(self.path):
            self._close()
            _create(self.path)
            self._connection = self._connect()
            self._opened = _identity(self.path)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        # Boundary: SQLite itself never makes the file ("rw"), it would let everybody read it.
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw", uri=True, timeout=self._busy_timeout_s, isolation_level=None
        )
        try:
            self._check(connection)
            self._use_wal(connection)
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that is another program's, or a newer version's, before anything in it is changed."""
        with _transaction(connection, "DEFERRED"):
            application, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
            is_new = not connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        if application != self._kind.application_id and not (is_new and application == 0):
            msg = f"{str(self.path)!r} is the database of another program, or kept for something else: name another {self._kind.name}"
            raise StorageError(msg)
        if version > len(self._migrations):
            msg = (
                f"the {self._kind.name} {str(self.path)!r} was written by a newer version (its schema is {version}, this "
                f"version knows {len(self._migrations)}): upgrade, or name another {self._kind.name}"
            )
            raise StorageError(msg)

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Where the file system cannot share memory it stays in the old mode, which is slower and as safe.
        # While another process writes to a file in that mode, SQLite gives up at once, because it could wait for
        # ever (https://sqlite.org/c3ref/busy_handler.html); here nothing is held, so that it can be tried again.
        until = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(_RETRY_S)
        connection.execute("PRAGMA synchronous = FULL")  # less loses, in WAL mode, what was acknowledged
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")  # Boundary: what is pruned can hold secrets

    def _migrate(self, connection: sqlite3.Connection) -> None:
        while (version := _pragma(connection, "user_version")) < len(self._migrations):
            with _transaction(connection, "IMMEDIATE"):
                if _pragma(connection, "user_version") != version:
                    continue  # another process was quicker
                for statement in self._migrations[version]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {self._kind.application_id}")
                connection.execute(f"PRAGMA user_version = {version + 1}")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def _transaction(connection: sqlite3.Connection, mode: str) -> Iterator[Transaction]:
    connection.execute(f"BEGIN {mode}")
    try:
        yield Transaction(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has rolled back by itself after some errors
            connection.execute("ROLLBACK")
        raise


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _create(path: Path) -> None:
    """Make the file where there is none.

    Boundary: only its user may read it, and so what SQLite puts beside it: those files get its mode.
    """
    # Closing a file drops all locks that this process has on it (https://sqlite.org/howtocorrupt.html, 2.2): only a
    # file that is new is opened here, and nobody else of this process gets to see it until it is closed again.
    with _creating:
        if path.exists():
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return  # another process was quicker


def _identity(path: Path) -> tuple[int, int] | None:
    """Return which file is at a path."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino
