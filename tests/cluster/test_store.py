"""The store: what was done is there after a restart and a kill, and bad files are refused in a sentence."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster.store import SCHEMA_VERSION, MetadataStore, MetadataStoreError
from barnabas.cluster.tree import (
    BadVersionError,
    Create,
    Delete,
    MetadataTree,
    Node,
    NodeExistsError,
    Operation,
    Row,
    Set,
)
from tests.cluster.harness import Loop

# Creates nodes as fast as it can, in commits of three, and writes the number of each commit whose `done` was called.
KILLED_PROGRAM = """
import os, queue, sys
from barnabas.cluster.store import MetadataStore
from barnabas.cluster.tree import Create, Set

calls = queue.SimpleQueue()
store = MetadataStore(sys.argv[1], lambda function, *arguments: calls.put((function, arguments)))

def done(number, result):
    assert isinstance(result, list), result
    os.write(1, b"%d\\n" % number)

store.commit([Create("/n", b"")], lambda result: None)
number = 0
while True:
    for number in range(number, number + 20):
        node = f"/n/{number}"
        commit = [Create(node, b""), Create(f"{node}/x", b"1"), Set(node, b"whole")]
        store.commit(commit, lambda result, number=number: done(number, result))
    number += 1
    while not calls.empty() or store._waiting.qsize() > 40:
        function, arguments = calls.get()
        function(*arguments)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "metadata.sqlite")


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def store(path: str, loop: Loop) -> Iterator[MetadataStore]:
    store = MetadataStore(path, loop.call_soon)
    yield store
    store.close()


def commit(loop: Loop, store: MetadataStore, *operations: Operation) -> Any:
    return loop.result(lambda done: store.commit(operations, done))


def rows(tree: MetadataTree) -> list[Row]:
    return sorted(tree.rows())


def test_restart_gives_the_same_tree(path: str, loop: Loop) -> None:
    with closing(MetadataStore(path, loop.call_soon)) as store:
        assert store.is_new
        assert commit(loop, store, Create("/a", b"1"), Create("/a/s", b"2", True)) == ["/a", "/a/s0000000000"]
        commit(loop, store, Set("/a", b"3"), Delete("/a/s0000000000"), Create("/b", b"\0\xff"), Set("/", b"root"))
        before = rows(store.tree)
    with closing(MetadataStore(path, loop.call_soon)) as store:
        assert not store.is_new
        assert rows(store.tree) == before
        assert store.tree.get("/a") == Node(b"3", 1)
        assert commit(loop, store, Create("/a/s", b"", True)) == ["/a/s0000000001"]


def test_commits_are_as_durable_as_sqlite_makes_them(store: MetadataStore) -> None:
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_tree_changes_on_the_thread_of_the_loop_just_before_done(store: MetadataStore, loop: Loop) -> None:
    seen: list[object] = []

    def done(_: object) -> None:
        seen.extend((threading.current_thread(), store.tree.get("/a"), store.tree.get("/b")))

    store.commit([Create("/a", b"")], done)
    store.commit([Create("/b", b"")], lambda _: None)
    assert store.tree.get("/a") is None
    loop.run_until(lambda: seen)
    assert seen == [threading.current_thread(), Node(b"", 0), None]


def test_one_failing_commit_among_many_fails_alone(store: MetadataStore, loop: Loop) -> None:
    results: list[Any] = []
    commits: list[list[Operation]] = [[Create(f"/{number}", b"")] for number in range(100)]
    commits[40] = [Create("/before", b""), Create("/39", b"")]
    commits[50] = [Set("/49", b"", 3)]
    commits[60] = [Create("/\ud800", b"")]  # No UTF-8 has it, so that SQLite's row can not be made.
    for operations in commits:
        store.commit(operations, results.append)
    loop.run_until(lambda: len(results) == 100)
    assert isinstance(results[40], NodeExistsError)
    assert isinstance(results[50], BadVersionError)
    assert isinstance(results[60], UnicodeEncodeError)
    good = [number for number in range(100) if number not in (40, 50, 60)]
    assert [results[number] for number in good] == [[f"/{number}"] for number in good]
    assert store.tree.children("/") == sorted(str(number) for number in good)
    assert rows(store.tree) == rows(store._writer_tree)


def test_close_finishes_what_was_handed_over(path: str, loop: Loop) -> None:
    results: list[Any] = []
    store = MetadataStore(path, loop.call_soon)
    for number in range(2_500):
        store.commit([Create(f"/{number}", b"")], results.append)
    store.close()
    store.close()
    assert results == [[f"/{number}"] for number in range(2_500)]
    late = loop.result(lambda done: store.commit([Create("/late", b"")], done))
    assert isinstance(late, MetadataStoreError)
    with closing(MetadataStore(path, loop.call_soon)) as store:
        assert len(store.tree.children("/")) == 2_500


def test_close_delivers_though_the_loop_is_closed(path: str) -> None:
    def closed_loop(*_: object) -> None:
        raise RuntimeError("Event loop is closed")

    results: list[Any] = []
    store = MetadataStore(path, closed_loop)
    store.commit([Create("/a", b"")], results.append)
    store.commit([Create("/b", b"")], results.append)
    store.close()
    assert results == [["/a"], ["/b"]]


@pytest.mark.parametrize("commits", [1, 300, 2_000])
def test_kill_loses_no_commit_that_was_done(path: str, loop: Loop, commits: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED_PROGRAM, path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process:
        done = -1
        while done + 1 < commits:
            done = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        # Lines are written whole, and those that were written before the kill count too.
        done = max([done, *map(int, process.stdout.read().split())])
    assert process.returncode == -signal.SIGKILL
    for _ in range(2):
        with closing(MetadataStore(path, loop.call_soon)) as store:
            found = sorted(map(int, store.tree.children("/n")))
            assert found == list(range(len(found))), "commits are done in order"
            assert len(found) > done
            assert all(store.tree.get(f"/n/{number}") == Node(b"whole", 1) for number in found)
            assert all(store.tree.get(f"/n/{number}/x") == Node(b"1", 0) for number in found)


def test_full_disk_takes_back_what_did_not_fit_and_goes_on(store: MetadataStore, loop: Loop) -> None:
    commit(loop, store, Create("/a", b"1"))
    store._connection.execute("PRAGMA max_page_count = 4")
    error = commit(loop, store, Set("/a", b"2"), Create("/big", bytes(100_000)))
    assert isinstance(error, sqlite3.OperationalError)
    assert rows(store.tree) == rows(store._writer_tree)
    assert store.tree.get("/a") == Node(b"1", 0)
    store._connection.execute("PRAGMA max_page_count = 100000")
    assert commit(loop, store, Create("/big", bytes(100_000))) == ["/big"]


class FailingConnection:
    """A connection whose COMMIT fails as it does after an fsync that failed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(statement, *parameters)


def test_after_an_error_of_the_disk_nothing_is_taken_until_a_restart(path: str, loop: Loop) -> None:
    with closing(MetadataStore(path, loop.call_soon)) as store:
        commit(loop, store, Create("/a", b""))
        connection = store._connection
        store._connection = FailingConnection(connection)  # type: ignore[assignment]
        assert isinstance(commit(loop, store, Create("/b", b"")), sqlite3.OperationalError)
        store._connection = connection
        error = commit(loop, store, Create("/c", b""))
        assert isinstance(error, MetadataStoreError)
        assert "until a restart, after disk I/O error" in str(error)
        assert store.tree.children("/") == ["a"]
    with closing(MetadataStore(path, loop.call_soon)) as store:
        assert store.tree.children("/") == ["a"]


def test_a_bad_path_is_told_to_its_author(store: MetadataStore, loop: Loop) -> None:
    with pytest.raises(AssertionError):
        store.commit([Create("a", b"")], lambda _: None)
    assert commit(loop, store, Create("/a", b"")) == ["/a"]


def sqlite_file(path: str, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def foreign(path: str) -> None:
    sqlite_file(path, "CREATE TABLE people (name TEXT)")


def text(path: str) -> None:
    Path(path).write_text("this is no database\n" * 100)


def ours(path: str, *statements: str) -> None:
    loop = Loop()
    with closing(MetadataStore(path, loop.call_soon)) as store:
        loop.result(lambda done: store.commit([Create(f"/{n}", bytes(500)) for n in range(100)], done))
    sqlite_file(path, *statements)


def newer(path: str) -> None:
    ours(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")


def older(path: str) -> None:
    ours(path, "PRAGMA user_version = 0")


def orphan(path: str) -> None:
    ours(path, "INSERT INTO node VALUES ('/x/y', x'', 0, 0)")


def wrong_type(path: str) -> None:
    ours(path, "UPDATE node SET value = 'text' WHERE path = '/7'")


def no_table(path: str) -> None:
    ours(path, "DROP TABLE node")


def zeroed_page(path: str) -> None:
    ours(path)
    with open(path, "r+b") as file:
        file.seek(3 * 4096)
        file.write(bytes(4096))


def truncated(path: str) -> None:
    ours(path)
    os.truncate(path, 3 * 4096)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (foreign, "an SQLite file of another program"),
        (text, "file is not a database"),
        (newer, f"a newer Barnabas wrote it: its schema is version {SCHEMA_VERSION + 1}"),
        (older, "its schema is version 0, which never was"),
        (orphan, "it is damaged: /x does not exist"),
        (wrong_type, "the node '/7' has fields of a wrong type"),
        (no_table, "no such table: node"),
        (zeroed_page, "damaged|malformed"),
        (truncated, "damaged|malformed"),
    ],
)
def test_a_bad_file_is_refused_and_left_as_it_is(path: str, make: Callable[[str], None], reason: str) -> None:
    make(path)
    before = Path(path).read_bytes()
    with pytest.raises(MetadataStoreError, match=reason) as caught:
        MetadataStore(path, Loop().call_soon)
    assert caught.value.path == path
    assert path in str(caught.value)
    assert Path(path).read_bytes() == before


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MetadataStoreError, match="unable to open"):
        MetadataStore(str(tmp_path / "missing" / "metadata.sqlite"), Loop().call_soon)


def test_a_file_in_use_is_refused(path: str, store: MetadataStore) -> None:
    with pytest.raises(MetadataStoreError, match="another process uses it"):
        MetadataStore(path, Loop().call_soon)


def test_a_start_that_died_before_the_schema_is_new(path: str, loop: Loop) -> None:
    sqlite_file(path, "PRAGMA journal_mode = WAL")
    with closing(MetadataStore(path, loop.call_soon)) as store:
        assert store.is_new
