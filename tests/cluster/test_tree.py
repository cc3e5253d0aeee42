"""The tree against a model that copies everything, and its errors one by one."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cluster.tree import (
    ANY_VERSION,
    BadVersionError,
    Create,
    Delete,
    MetadataTree,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Row,
    Set,
    TreeError,
)


class Model:
    """The same tree the slow way: every commit works on a copy, which is taken over or thrown away."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int, int]] = {"/": (b"", 0, 0)}

    def apply(self, operations: Sequence[Operation]) -> list[str] | tuple[type[TreeError], str]:
        before = dict(self.nodes)
        paths = []
        for operation in operations:
            result = self.apply_one(operation)
            if isinstance(result, tuple):
                self.nodes = before
                return result
            paths.append(result)
        return paths

    def apply_one(self, operation: Operation) -> str | tuple[type[TreeError], str]:
        path = operation.path
        parent = path.rpartition("/")[0] or "/"
        if isinstance(operation, Create):
            if parent not in self.nodes:
                return NoNodeError, parent
            if operation.is_sequential:
                value, version, sequence = self.nodes[parent]
                path = f"{path}{sequence:010}"
            if path in self.nodes:
                return NodeExistsError, path
            if operation.is_sequential:
                self.nodes[parent] = (value, version, sequence + 1)
            self.nodes[path] = (operation.value, 0, 0)
            return path
        if path not in self.nodes:
            return NoNodeError, path
        _, version, sequence = self.nodes[path]
        if operation.version not in (ANY_VERSION, version):
            return BadVersionError, path
        if isinstance(operation, Set):
            self.nodes[path] = (operation.value, version + 1, sequence)
            return path
        if self.children(path):
            return NotEmptyError, path
        del self.nodes[path]
        return path

    def children(self, path: str) -> list[str]:
        start = path.rstrip("/") + "/"
        return sorted(
            other[len(start) :]
            for other in self.nodes
            if other.startswith(start) and "/" not in other[len(start) :] > ""
        )


names = st.sampled_from(["a", "b", "a0000000001"])
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
values = st.binary(max_size=2)
versions = st.sampled_from([ANY_VERSION, ANY_VERSION, 0, 1])
operations = st.one_of(
    st.builds(Create, paths, values, st.booleans()),
    st.builds(Create, paths, values),
    st.builds(Set, paths, values, versions),
    st.builds(Delete, paths, versions),
)


@given(st.lists(st.lists(operations, max_size=5), max_size=30))
def test_tree_does_what_the_model_does(commits: list[list[Operation]]) -> None:
    tree, model = MetadataTree(), Model()
    for commit in commits:
        expected = model.apply(commit)
        try:
            assert tree.apply(commit) == expected
        except TreeError as error:
            assert (type(error), error.path) == expected
        assert {path: tuple(rest) for path, *rest in tree.rows()} == model.nodes
        for path in model.nodes:
            assert tree.children(path) == model.children(path)
    again = MetadataTree.from_rows(tree.rows())
    assert sorted(again.rows()) == sorted(tree.rows())
    assert all(again.children(path) == tree.children(path) for path in model.nodes)


@pytest.mark.parametrize(
    ("commit", "error", "path"),
    [
        ([Create("/a/b/c", b"")], NoNodeError, "/a/b"),
        ([Create("/a", b"")], NodeExistsError, "/a"),
        ([Set("/x", b"")], NoNodeError, "/x"),
        ([Set("/a", b"", 7)], BadVersionError, "/a"),
        ([Delete("/x")], NoNodeError, "/x"),
        ([Delete("/a", 7)], BadVersionError, "/a"),
        ([Create("/a/b", b""), Delete("/a")], NotEmptyError, "/a"),
    ],
)
def test_a_commit_that_fails_at_its_end_changes_nothing(
    commit: list[Operation], error: type[TreeError], path: str
) -> None:
    tree = MetadataTree()
    tree.apply([Create("/a", b"1"), Create("/gone", b"2")])
    before = sorted(tree.rows())
    changes: list[Operation] = [Set("/a", b"2"), Delete("/gone"), Create("/n", b""), Create("/a/s", b"", True)]
    changes.append(Delete("/a/s0000000000"))
    with pytest.raises(error) as caught:
        tree.apply([*changes, *commit])
    assert caught.value.path == path
    assert path in str(caught.value)
    assert sorted(tree.rows()) == before


def test_numbers_of_sequential_nodes_are_not_given_again() -> None:
    tree = MetadataTree()
    tree.apply([Create("/changes", b"")])
    assert tree.apply([Create("/changes/c_", b"", True)]) == ["/changes/c_0000000000"]
    tree.apply([Delete("/changes/c_0000000000")])
    assert tree.apply([Create("/changes/c_", b"", is_sequential=True)]) == ["/changes/c_0000000001"]
    assert tree.get("/changes/c_0000000001") == Node(b"", 0)


def test_rows_without_a_parent_make_no_tree() -> None:
    with pytest.raises(NoNodeError, match="/a does not exist"):
        MetadataTree.from_rows([Row("/a/b", b"", 0, 0)])


@pytest.mark.parametrize("path", ["a", "/a/", "/a//b", ""])
def test_a_bad_path_is_a_bug(path: str) -> None:
    with pytest.raises(AssertionError):
        MetadataTree().apply([Create(path, b"")])


def test_nothing_is_at_a_path_that_is_not_there() -> None:
    assert MetadataTree().get("/a") is None
    assert MetadataTree().row("/a") is None
    assert MetadataTree().children("/a") == []
