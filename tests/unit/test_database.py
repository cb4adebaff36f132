"""The door to SQLite: transactions, versions of the schema, and what a broken file is to the caller."""

import asyncio
import os
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from aeolus_sandbox.errors import ConfigurationError, StorageBusy, StorageError, StorageFull
from aeolus_sandbox.storage.database import Database, Transaction
from aeolus_sandbox.storage.database_errors import storage_error
from aeolus_sandbox.storage.location import default_state_path

FIRST = ("CREATE TABLE words (word TEXT NOT NULL UNIQUE)",)
SECOND = ("ALTER TABLE words ADD COLUMN language TEXT NOT NULL DEFAULT 'en'",)
LIMIT_S = 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    async with asyncio.timeout(LIMIT_S), aclosing(Database(path, migrations=[FIRST])) as opened:
        yield opened


@pytest.fixture
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def add(transaction: Transaction, word: str) -> None:
    transaction.change("INSERT INTO words (word) VALUES (:word)", word=word)


def words_in(transaction: Transaction) -> list[str]:
    return [row["word"] for row in transaction.rows("SELECT word FROM words ORDER BY word")]


async def words(database: Database) -> list[str]:
    return await database.read(words_in)


# The file.


@pytest.mark.usefixtures("_open_umask")
async def test_file_and_folder_are_for_their_user_alone(database: Database) -> None:
    await database.write(lambda transaction: add(transaction, "secret"))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in database.path.parent.iterdir()}
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    assert stat.S_IMODE(database.path.parent.stat().st_mode) == 0o700


async def test_nothing_is_made_before_the_first_use(database: Database) -> None:
    assert not database.path.parent.exists()


async def test_what_was_acknowledged_survives_a_power_cut(database: Database) -> None:
    settings = ("journal_mode", "synchronous", "foreign_keys", "secure_delete")

    def read(transaction: Transaction) -> list[object]:
        return [transaction.rows(f"PRAGMA {name}")[0][name] for name in settings]

    assert await database.read(read) == ["wal", 2, 1, 1]


@pytest.mark.parametrize(
    "name", ["with space.db", "a?b=c#d%20.db", "ümlaut 日本.db", ":memory:", "file:x.db"]
)
async def test_any_file_name_is_taken_literally(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for word in ("one", "two"):
        async with aclosing(Database(path, migrations=[FIRST])) as database:
            await database.write(lambda transaction, word=word: add(transaction, word))  # type: ignore[misc]
    assert [file.name for file in tmp_path.iterdir()] == [name]
    async with aclosing(Database(path, migrations=[FIRST])) as database:
        assert await words(database) == ["one", "two"]


async def test_removed_file_is_made_anew(database: Database) -> None:
    await database.write(lambda transaction: add(transaction, "old"))
    for file in database.path.parent.iterdir():
        file.unlink()
    await database.write(lambda transaction: add(transaction, "new"))
    async with aclosing(Database(database.path, migrations=[FIRST])) as other:
        assert await words(other) == ["new"]


async def test_what_was_deleted_is_not_in_the_file(database: Database) -> None:
    await database.write(lambda transaction: add(transaction, "PASSWORD"))
    await database.write(lambda transaction: transaction.change("DELETE FROM words"))
    await database.aclose()
    assert b"PASSWORD" not in database.path.read_bytes()


# Transactions.


async def test_error_undoes_everything_and_the_next_write_works(database: Database) -> None:
    def work(transaction: Transaction) -> None:
        add(transaction, "one")
        raise LookupError

    with pytest.raises(LookupError):
        await database.write(work)
    await database.write(lambda transaction: add(transaction, "two"))
    assert await words(database) == ["two"]


async def test_refused_row_undoes_everything_and_does_not_show_the_value(database: Database) -> None:
    def work(transaction: Transaction) -> None:
        add(transaction, "PASSWORD")
        add(transaction, "PASSWORD")

    with pytest.raises(StorageError) as caught:
        await database.write(work)
    assert "PASSWORD" not in f"{caught.value}{caught.value.__cause__}"
    assert await words(database) == []


async def test_cancelled_write_is_made_wholly_and_leaves_no_transaction_open(database: Database) -> None:
    began, go_on = threading.Event(), threading.Event()

    def work(transaction: Transaction) -> None:
        add(transaction, "one")
        began.set()
        go_on.wait(LIMIT_S)
        add(transaction, "two")

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(database.write(work))
        assert await asyncio.to_thread(began.wait, LIMIT_S)
        writing.cancel()
        await asyncio.wait([writing])
        assert writing.cancelled()
        go_on.set()
    async with aclosing(Database(database.path, migrations=[FIRST])) as other:
        await other.write(lambda transaction: add(transaction, "three"))
        assert await words(other) == ["one", "three", "two"]


async def test_write_whose_caller_is_cancelled_in_the_queue_is_not_made(database: Database) -> None:
    began, go_on = threading.Event(), threading.Event()

    def wait(_: Transaction) -> None:
        began.set()
        go_on.wait(LIMIT_S)

    async with asyncio.TaskGroup() as group:
        group.create_task(database.write(wait))
        assert await asyncio.to_thread(began.wait, LIMIT_S)
        queued = group.create_task(database.write(lambda transaction: add(transaction, "one")))
        await asyncio.sleep(0)
        queued.cancel()
        await asyncio.wait([queued])
        go_on.set()
    assert await words(database) == []


async def test_read_sees_one_state_whatever_is_written_meanwhile(database: Database) -> None:
    began, go_on = threading.Event(), threading.Event()

    def read_twice(transaction: Transaction) -> tuple[list[str], list[str]]:
        before = words_in(transaction)
        began.set()
        go_on.wait(LIMIT_S)
        return before, words_in(transaction)

    await database.write(lambda transaction: add(transaction, "one"))
    async with (
        aclosing(Database(database.path, migrations=[FIRST])) as other,
        asyncio.TaskGroup() as group,
    ):
        reading = group.create_task(database.read(read_twice))
        assert await asyncio.to_thread(began.wait, LIMIT_S)
        await other.write(lambda transaction: add(transaction, "two"))
        go_on.set()
    assert reading.result() == (["one"], ["one"])
    assert await words(database) == ["one", "two"]


async def test_close_waits_for_what_is_under_way(database: Database) -> None:
    began, go_on = threading.Event(), threading.Event()

    def work(transaction: Transaction) -> None:
        began.set()
        go_on.wait(LIMIT_S)
        add(transaction, "one")

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(database.write(work))
        assert await asyncio.to_thread(began.wait, LIMIT_S)
        group.create_task(database.aclose())
        await asyncio.sleep(0)
        go_on.set()
    assert writing.done()
    async with aclosing(Database(database.path, migrations=[FIRST])) as other:
        assert await words(other) == ["one"]


async def test_closed_database_says_so(database: Database) -> None:
    await database.aclose()
    await database.aclose()
    with pytest.raises(StorageError, match="is closed"):
        await words(database)


async def test_disk_that_hangs_does_not_hang_the_caller(path: Path) -> None:
    go_on = threading.Event()
    async with aclosing(Database(path, answer_timeout_s=0.05)) as database:
        with pytest.raises(StorageBusy, match=r"not answered in 0\.05 s"):
            await database.write(lambda _: go_on.wait(LIMIT_S))
        go_on.set()


async def test_opening_waits_while_somebody_writes_to_a_new_file(database: Database) -> None:
    """Where SQLite gives up at once, however long it may wait: the file is not in WAL mode yet."""
    database.path.parent.mkdir()
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(database.write(lambda transaction: add(transaction, "one")))
            await asyncio.wait([writing], timeout=0.2)
            other.execute("ROLLBACK")
    assert await words(database) == ["one"]


# Versions.


async def test_older_file_gets_the_new_schema_and_keeps_its_rows(database: Database, path: Path) -> None:
    await database.write(lambda transaction: add(transaction, "one"))
    await database.aclose()
    async with aclosing(Database(path, migrations=[FIRST, SECOND])) as newer:
        rows = await newer.read(lambda transaction: transaction.rows("SELECT * FROM words"))
    assert rows == [{"word": "one", "language": "en"}]


async def test_migration_that_fails_changes_nothing(database: Database, path: Path) -> None:
    await database.write(lambda transaction: add(transaction, "one"))
    await database.aclose()
    broken = (*SECOND, "CREATE TABLE words (word TEXT)")
    async with aclosing(Database(path, migrations=[FIRST, broken])) as newer:
        with pytest.raises(StorageError):
            await words(newer)
    async with aclosing(Database(path, migrations=[FIRST])) as older:
        rows = await older.read(lambda transaction: transaction.rows("SELECT * FROM words"))
    assert rows == [{"word": "one"}]


async def test_file_of_a_newer_version_is_refused_and_not_touched(database: Database, path: Path) -> None:
    async with aclosing(Database(path, migrations=[FIRST, SECOND])) as newer:
        await newer.write(lambda transaction: add(transaction, "one"))
    before = path.read_bytes()
    with pytest.raises(StorageError, match="newer version") as caught:
        await words(database)
    assert repr(str(path)) in str(caught.value)
    assert path.read_bytes() == before


async def test_database_of_another_program_is_refused_and_not_touched(database: Database, path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE cookies (value TEXT)")
    before = path.read_bytes()
    with pytest.raises(StorageError, match="another program"):
        await words(database)
    assert path.read_bytes() == before


# Broken files.


async def test_file_that_is_no_database_is_refused_until_it_is_moved_away(database: Database) -> None:
    content = b"dear diary, today I wrote a file that is no database\n" * 100
    database.path.parent.mkdir()
    database.path.write_bytes(content)
    with pytest.raises(StorageError, match="move it away") as caught:
        await words(database)
    assert repr(str(database.path)) in str(caught.value)
    assert not caught.value.retryable
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    assert database.path.read_bytes() == content
    database.path.rename(database.path.with_suffix(".old"))
    assert await words(database) == []


async def test_damaged_file_is_refused(database: Database) -> None:
    for number in range(500):
        await database.write(lambda transaction, word=f"{number:0100}": add(transaction, word))  # type: ignore[misc]
    await database.aclose()
    with database.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 40960)
    async with aclosing(Database(database.path, migrations=[FIRST])) as again:
        with pytest.raises(StorageError, match=r"damaged|state\.db"):
            await words(again)


async def test_folder_in_the_place_of_the_file_is_refused(database: Database) -> None:
    database.path.mkdir(parents=True)
    with pytest.raises(StorageError, match="see whether it is a file"):
        await words(database)


async def test_file_in_the_place_of_the_folder_is_refused(database: Database) -> None:
    database.path.parent.write_text("not a folder")
    with pytest.raises(StorageError) as caught:
        await words(database)
    assert repr(str(database.path)) in str(caught.value)


def test_file_that_may_not_be_written_is_to_be_made_writable(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        with pytest.raises(sqlite3.OperationalError) as caught:
            connection.execute("CREATE TABLE words (word TEXT)")
        error = storage_error(caught.value, path)
    assert type(error) is StorageError
    assert "make it writable" in str(error)
    assert repr(str(path)) in str(error)


def test_quota_that_is_used_up_is_a_full_disk(tmp_path: Path) -> None:
    error = OSError(122, "Disk quota exceeded")
    assert isinstance(storage_error(error, tmp_path / "state.db"), StorageFull)


# Where it is.


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AEOLUS_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_state_is_kept_where_the_environment_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_state_path() == home / ".local/state/aeolus/state.db"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert default_state_path() == home / ".local/state/aeolus/state.db"
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert default_state_path() == Path("/var/state/aeolus/state.db")
    monkeypatch.setenv("AEOLUS_STATE", "~/mine.db")
    assert default_state_path() == home / "mine.db"


def test_user_without_a_home_is_told_to_name_a_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AEOLUS_STATE", "~nobody-of-this-name/state.db")
    with pytest.raises(ConfigurationError, match="AEOLUS_STATE"):
        default_state_path()
