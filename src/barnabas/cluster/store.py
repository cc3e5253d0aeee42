"""The metadata tree on the disk of one broker: an SQLite file, written by one thread.

Commits come from the loop's thread and are validated and written by the writer thread; their results go back to the
loop's thread through `call_soon`. Every node is a row (path, value, version, counter of its sequential children).

Rule 1: `tree` is what is durable, and only the loop's thread touches it. The writer validates against a copy of its
own, which is ahead by the commits whose results are still on their way.
Rule 2: commits are done in the order in which they were handed over, and their results arrive in that order. Those
that wait together share one transaction; one that does not fit the tree fails alone.
Rule 3: `done` with paths means that the commit is on the disk (WAL, synchronous=FULL). `done` with an error means
that nothing changed.
Rule 4: after an error of the disk the store refuses all commits until a restart, because after a failed fsync nobody
knows what is on the disk. A full disk is different: SQLite takes back what did not fit, and later commits may succeed.
Rule 5: a file is refused in one sentence before anything in it is changed.
"""

import logging
import os
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from barnabas.cluster.tree import Create, MetadataTree, Operation, Row, TreeError, check_path, parent_of

logger = logging.getLogger(__name__)

APPLICATION_ID = 0x42524E42  # "BRNB", at byte 68 of the file, where `file` and SQLite's tools look for it.
SCHEMA_VERSION = 1
COMMITS_PER_TRANSACTION_MAX = 1_000
LOCK_TIMEOUT_SECONDS = 1.0

Result = list[str] | Exception


class MetadataStoreError(Exception):
    """The file can not be used, or no longer; the message says which and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class _Commit(NamedTuple):
    operations: Sequence[Operation]
    done: Callable[[Result], None]


def _connect(path: str) -> sqlite3.Connection:
    # The connection is made by the thread that starts the broker and then used by the writer alone.
    connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
    # Two brokers on one file would each trust its own copy of the tree.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return connection


def _number(connection: sqlite3.Connection, query: str) -> int:
    number = connection.execute(query).fetchone()[0]
    assert isinstance(number, int)
    return number


def _check_schema(connection: sqlite3.Connection, path: str) -> bool:
    """Tell whether the file is empty; raises MetadataStoreError when it is not one of ours."""
    application_id = _number(connection, "PRAGMA application_id")
    version = _number(connection, "PRAGMA user_version")
    if application_id == 0 and version == 0 and _number(connection, "SELECT count(*) FROM sqlite_master") == 0:
        return True
    if application_id != APPLICATION_ID:
        raise MetadataStoreError(path, "this is an SQLite file of another program, not Barnabas's metadata")
    if version > SCHEMA_VERSION:
        raise MetadataStoreError(
            path,
            f"a newer Barnabas wrote it: its schema is version {version}, and this one knows up to {SCHEMA_VERSION}",
        )
    if version < 1:
        raise MetadataStoreError(path, f"its schema is version {version}, which never was")
    return False


def _make_durable(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _create_schema(connection: sqlite3.Connection, path: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "CREATE TABLE node (path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL,"
        " next_sequence INTEGER NOT NULL) WITHOUT ROWID"
    )
    _write_rows(connection, list(MetadataTree().rows()))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")
    # SQLite syncs the folder for its journals only; the name of the file itself must be durable too.
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_rows(connection: sqlite3.Connection, path: str) -> Iterator[Row]:
    for row in map(Row._make, connection.execute("SELECT path, value, version, next_sequence FROM node")):
        if [type(field) for field in row] != [str, bytes, int, int]:
            raise MetadataStoreError(path, f"the node {row.path!r} has fields of a wrong type")
        yield row


def _write_rows(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO node (path, value, version, next_sequence) VALUES (?, ?, ?, ?)", rows
    )


def _read_tree(connection: sqlite3.Connection, path: str) -> MetadataTree:
    try:
        return MetadataTree.from_rows(_read_rows(connection, path))
    except TreeError as error:
        raise MetadataStoreError(path, f"it is damaged: {error}, but its children do") from None


def _open(path: str) -> tuple[sqlite3.Connection, bool]:
    """Return the connection to a file that was checked, and whether the file is new."""
    connection = _connect(path)
    try:
        is_new = _check_schema(connection, path)
        if not is_new:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise MetadataStoreError(path, f"it is damaged: {verdict}")
        _make_durable(connection)
        if is_new:
            _create_schema(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection, is_new


def _reason(error: sqlite3.Error) -> str:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
        return "another process uses it"
    return f"SQLite can not use it: {error}"


class MetadataStore:
    """A durable MetadataTree: operations are handed over, and results arrive later by a callback.

    Args:
        path: the SQLite file; its folder exists.
        call_soon: calls a function on the loop's thread, as `loop.call_soon_threadsafe` does.

    Raises:
        MetadataStoreError: the file is damaged, another program's, a newer version's, or in use.
    """

    def __init__(self, path: str, call_soon: Callable[..., object]) -> None:
        self._path = path
        self._call_soon = call_soon
        try:
            self._connection, self.is_new = _open(path)
            try:
                self._writer_tree = _read_tree(self._connection, path)
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            raise MetadataStoreError(path, _reason(error)) from error
        self.tree = MetadataTree.from_rows(self._writer_tree.rows())
        # Set by the writer alone: why all further commits are refused.
        self._failure: MetadataStoreError | None = None
        self._is_closed = False
        self.make_room: Callable[[], bool] = lambda: False
        """Called by the writer when the disk is full; tells whether it is worth another attempt."""
        self._waiting: queue.SimpleQueue[_Commit | None] = queue.SimpleQueue()
        self._finished: deque[tuple[_Commit, Result]] = deque()
        # A daemon, so that a program that ends without `close` does end; it then loses what a crash loses.
        self._thread = threading.Thread(target=self._write_until_closed, name="metadata-writer", daemon=True)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Whether no change is taken any more, after an error that does not pass as a full disk does."""
        return self._failure is not None

    def commit(self, operations: Sequence[Operation], done: Callable[[Result], None]) -> None:
        """Hand operations over; `done` is called later, on the loop's thread, with their paths or the error."""
        for operation in operations:
            check_path(operation.path)  # A bug is found here, at its author, and not in the thread of the writer.
        if self._is_closed:
            self._call_soon(done, MetadataStoreError(self._path, "it is closed"))
            return
        self._waiting.put(_Commit(operations, done))

    def close(self) -> None:
        """Finish what was handed over, call every `done` that is still owed, and close the file."""
        if self._is_closed:
            return
        self._is_closed = True
        self._waiting.put(None)
        self._thread.join()
        # The results are on their way through `call_soon` too, but the loop may never run again.
        while self._finished:
            self._deliver()
        try:
            self._connection.close()
        except sqlite3.Error as error:
            logger.warning("%s could not be closed in order; the next start recovers it: %s", self._path, error)

    def _deliver(self) -> None:
        """Take over the oldest finished commit, on the loop's thread."""
        if not self._finished:
            return  # `close` was faster.
        commit, result = self._finished.popleft()
        if not isinstance(result, Exception):
            paths = self.tree.apply(commit.operations)
            assert paths == result, "the loop's tree and the writer's have parted"
        commit.done(result)

    def _write_until_closed(self) -> None:
        is_open = True
        while is_open:
            commits: list[_Commit] = []
            commit = self._waiting.get()
            while commit is not None:
                commits.append(commit)
                if len(commits) == COMMITS_PER_TRANSACTION_MAX or self._waiting.empty():
                    break
                commit = self._waiting.get()
            is_open = commit is not None
            for finished in zip(commits, self._write(commits), strict=True):
                self._finished.append(finished)
                try:
                    self._call_soon(self._deliver)
                except RuntimeError:
                    logger.debug("the loop is closed; `close` delivers what is left")

    def _write(self, commits: Sequence[_Commit]) -> Sequence[Result]:
        """Write commits in one transaction and return the result of each."""
        if self._failure is not None:
            return [self._failure] * len(commits)
        if not commits:
            return []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            results = [self._write_one(commit.operations) for commit in commits]
            self._connection.execute("COMMIT")
        except (sqlite3.Error, OSError, MetadataStoreError) as error:
            self._take_back(error)
            is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            if is_full and self.make_room():
                return self._write(commits)  # It makes room once only: there is one reserve.
            return [error] * len(commits)
        return results

    def _write_one(self, operations: Sequence[Operation]) -> Result:
        """Write one commit within the transaction; what fits neither the tree nor a row fails alone."""
        try:
            paths = self._writer_tree.apply(operations)
        except TreeError as error:
            return error
        touched = dict.fromkeys(paths)
        for operation, path in zip(operations, paths, strict=True):
            if isinstance(operation, Create) and operation.is_sequential:
                touched[parent_of(path)] = None
        rows = {path: self._writer_tree.row(path) for path in touched}
        self._connection.execute("SAVEPOINT one")
        try:
            _write_rows(self._connection, [row for row in rows.values() if row is not None])
            gone = [(path,) for path, row in rows.items() if row is None]
            self._connection.executemany("DELETE FROM node WHERE path = ?", gone)
        except (sqlite3.DataError, UnicodeError) as error:
            self._connection.execute("ROLLBACK TO one")
            self._connection.execute("RELEASE one")
            self._writer_tree = _read_tree(self._connection, self._path)
            return error
        self._connection.execute("RELEASE one")
        return paths

    def _take_back(self, error: Exception) -> None:
        """Return to what was durable before a transaction that failed, or refuse everything from now on."""
        is_passing = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._writer_tree = _read_tree(self._connection, self._path)
        except (sqlite3.Error, MetadataStoreError) as worse:
            error, is_passing = worse, False
        if is_passing:
            logger.warning("%s: a change of the metadata was not written and is taken back: %s", self._path, error)
            return
        self._failure = MetadataStoreError(self._path, f"no change is taken until a restart, after {error}")
        logger.error("%s", self._failure)
