"""A tree of small versioned nodes in memory, with the semantics of ZooKeeper's: the shape of all metadata.

Operations come from the controller and results go back to it. What makes the tree durable is in store.py; this file
has no input or output.

Rule 1: `apply` does all of its operations or none, as ZooKeeper's multi() does.
Rule 2: the same operations on the same tree give the same paths, versions and errors. Two copies of a tree that are
fed the same commits in the same order stay equal, which is how the writer's copy and the loop's copy are kept.
Rule 3: a parent exists before its children and goes after them. The root always exists.
Rule 4: the number of a sequential node is never given again while its parent lives.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

ANY_VERSION = -1
"""The version that a Set or Delete names when it does not matter what is there."""

ROOT = "/"
SEQUENCE_DIGITS = 10


class Node(NamedTuple):
    """What a path holds; the version counts the changes of the value since it was created."""

    value: bytes
    version: int


class Create(NamedTuple):
    """Add a node; a sequential one gets ten digits appended to its path."""

    path: str
    value: bytes
    is_sequential: bool = False


class Set(NamedTuple):
    """Replace the value of a node."""

    path: str
    value: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Remove a node that has no children."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete


class Row(NamedTuple):
    """Everything there is to keep of one node, to make the same tree again."""

    path: str
    value: bytes
    version: int
    next_sequence: int


class TreeError(Exception):
    """An operation does not fit the tree; nothing of its commit was done."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


class NodeExistsError(TreeError):
    """A node that should be created is there already."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "exists already")


class NoNodeError(TreeError):
    """A node that should be changed, or the parent of one that should be created, is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "does not exist")


class BadVersionError(TreeError):
    """Somebody else changed the node since its version was read."""

    def __init__(self, path: str, expected: int, found: int) -> None:
        super().__init__(path, f"has version {found}, not {expected}")


class NotEmptyError(TreeError):
    """A node that should be deleted still has children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "still has children")


class _Before(NamedTuple):
    """How a path was before an operation, to put it back when a later operation of the same commit fails."""

    path: str
    node: Node | None
    next_sequence: int
    next_sequence_of_parent: int


def parent_of(path: str) -> str:
    """`/brokers/topics` of `/brokers/topics/orders`."""
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    """`orders` of `/brokers/topics/orders`."""
    return path[path.rindex("/") + 1 :]


def check_path(path: str) -> None:
    """Assert that a path is one: paths are made by our own code, so that a bad one is a bug."""
    assert path.startswith("/"), f"{path!r} does not begin with a slash"
    assert path == ROOT or not path.endswith("/"), f"{path!r} ends with a slash"
    assert "//" not in path, f"{path!r} has an empty name"


class MetadataTree:
    """Nodes by path, and the names of the children of each."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {ROOT: Node(b"", 0)}
        # Only nodes that have children have an entry here, because most nodes are leaves. The same holds for counters.
        self._children: dict[str, set[str]] = {}
        self._next_sequences: dict[str, int] = {}

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> "MetadataTree":
        """Make the tree that `rows` came from; raises NoNodeError when a parent is missing."""
        tree = cls()
        for row in rows:
            tree._put(row.path, Node(row.value, row.version))
            tree._put_sequence(row.path, row.next_sequence)
        for path in tree._children:
            if path not in tree._nodes:
                raise NoNodeError(path)
        return tree

    def rows(self) -> Iterator[Row]:
        """Yield every node, the root too, in no particular order."""
        for path in self._nodes:
            row = self.row(path)
            assert row is not None
            yield row

    def row(self, path: str) -> Row | None:
        """Return what there is to keep of one node."""
        node = self._nodes.get(path)
        return None if node is None else Row(path, *node, self._next_sequences.get(path, 0))

    def get(self, path: str) -> Node | None:
        """Return the node of a path, or None."""
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, sorted; none when there is no such node."""
        return sorted(self._children.get(path, ()))

    def apply(self, operations: Sequence[Operation]) -> list[str]:
        """Do all operations in order, or raise TreeError and do none.

        Returns the path of each operation, which for a sequential Create is the one with its digits.
        """
        done: list[_Before] = []
        try:
            return [self._apply_one(operation, done) for operation in operations]
        except TreeError:
            for before in reversed(done):
                self._put_back(before)
            raise

    def _apply_one(self, operation: Operation, done: list[_Before]) -> str:
        check_path(operation.path)
        if isinstance(operation, Create):
            return self._create(operation, done)
        path = operation.path
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(path, operation.version, node.version)
        if isinstance(operation, Set):
            done.append(self._before(path))
            self._nodes[path] = Node(operation.value, node.version + 1)
            return path
        assert path != ROOT, "the root stays"
        if path in self._children:
            raise NotEmptyError(path)
        done.append(self._before(path))
        self._remove(path)
        return path

    def _create(self, operation: Create, done: list[_Before]) -> str:
        path = operation.path
        parent = parent_of(path)
        if path != ROOT and parent not in self._nodes:
            raise NoNodeError(parent)
        if operation.is_sequential:
            sequence = self._next_sequences.get(parent, 0)
            path = f"{path}{sequence:0{SEQUENCE_DIGITS}}"
        if path in self._nodes:
            raise NodeExistsError(path)
        done.append(self._before(path))
        if operation.is_sequential:
            self._next_sequences[parent] = sequence + 1
        self._put(path, Node(operation.value, 0))
        return path

    def _before(self, path: str) -> _Before:
        sequences = self._next_sequences
        return _Before(path, self._nodes.get(path), sequences.get(path, 0), sequences.get(parent_of(path), 0))

    def _put_back(self, before: _Before) -> None:
        if before.node is None:
            self._remove(before.path)
        else:
            self._put(before.path, before.node)
            self._put_sequence(before.path, before.next_sequence)
        if before.path != ROOT:
            self._put_sequence(parent_of(before.path), before.next_sequence_of_parent)

    def _put(self, path: str, node: Node) -> None:
        self._nodes[path] = node
        if path != ROOT:
            self._children.setdefault(parent_of(path), set()).add(name_of(path))

    def _remove(self, path: str) -> None:
        del self._nodes[path]
        self._next_sequences.pop(path, None)
        parent = parent_of(path)
        names = self._children[parent]
        names.remove(name_of(path))
        if not names:
            del self._children[parent]

    def _put_sequence(self, path: str, next_sequence: int) -> None:
        if next_sequence:
            self._next_sequences[path] = next_sequence
        else:
            self._next_sequences.pop(path, None)
