"""Habits that a machine can hold: sizes, docstrings, leftovers, the only user of time, and a test file for each module.

Each rule gives a list of complaints, and the test shows all of them at once.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "barnabas"
TESTS = ROOT / "tests"

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 700

# The one `__init__.py` with code: it carries the names that users import, each loaded on first use.
INIT_WITH_CODE = {"barnabas/__init__.py", "barnabas/spark/__init__.py"}

# The seam that everything else takes the time from.
USERS_OF_TIME = {"barnabas/clock.py"}

# Modules without a test file of their own, each with the reason.
WITHOUT_OWN_TEST: dict[str, str] = {
    # Declarations without code: test_codec and test_oracles run every one of them in every version.
    **dict.fromkeys(
        (path.relative_to(ROOT / "src").as_posix() for path in (SOURCE / "wire" / "messages").glob("*.py")),
        "only declarations",
    ),
}

# Split, so that this file does not complain about itself.
LEFTOVERS = re.compile(r"\b(FIX" r"ME|TO" r"DO|XX" r"X)\b")


def source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    """`barnabas/storage/log.py`"""
    return path.relative_to(ROOT / "src").as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions_of(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


def test_there_is_source_to_look_at() -> None:
    assert source_files()


def test_every_module_says_what_it_is() -> None:
    assert [name_of(path) for path in source_files() if not ast.get_docstring(parsed(path))] == []


def test_functions_are_short() -> None:
    assert [
        f"{name_of(path)}:{function.lineno} {function.name} has {lines_of(function)} lines"
        for path in source_files()
        for function in functions_of(parsed(path))
        if lines_of(function) > FUNCTION_LINES_MAX
    ] == []


def test_files_are_short() -> None:
    lines = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in source_files()}
    assert {name: count for name, count in lines.items() if count > FILE_LINES_MAX} == {}


def test_nothing_is_left_for_later_in_a_comment() -> None:
    folders = (TESTS, ROOT / "bench", ROOT / "checker", ROOT / "demo")
    files = [*source_files(), *(path for folder in folders for path in folder.rglob("*.py"))]
    assert [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if LEFTOVERS.search(line)
    ] == []


def test_init_files_hold_only_a_docstring() -> None:
    assert [
        name_of(path)
        for path in source_files()
        if path.name == "__init__.py" and name_of(path) not in INIT_WITH_CODE and len(parsed(path).body) != 1
    ] == []


def test_every_folder_is_a_package() -> None:
    """A folder without `__init__.py` would be left out of the layers' check, and its tests could clash with others."""
    folders = {path.parent for path in [*source_files(), *TESTS.rglob("*.py")]}
    assert [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()] == []


def uses_of_time(tree: ast.Module) -> Iterator[int]:
    """Lines that import the module `time`, or ask `datetime` for now or today."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) if any(alias.name == "time" for alias in names):
                yield node.lineno
            case ast.ImportFrom(module="time"):
                yield node.lineno
            # `datetime.now`, `datetime.datetime.now`, `date.today`; not `clock.now`.
            case ast.Attribute(attr="now" | "utcnow" | "today", value=value):
                if ast.unparse(value).split(".")[-1] in ("datetime", "date"):
                    yield node.lineno


def test_only_the_clock_uses_time() -> None:
    assert [
        f"{name_of(path)}:{line}"
        for path in source_files()
        if name_of(path) not in USERS_OF_TIME
        for line in uses_of_time(parsed(path))
    ] == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", True),
        ("from time import monotonic", True),
        ("import datetime\ndatetime.datetime.now()", True),
        ("from datetime import datetime\ndatetime.utcnow()", True),
        ("clock.now()", False),
        ("import datetime\ndatetime.datetime.fromtimestamp(0)", False),
    ],
)
def test_uses_of_time_are_found(source: str, found: bool) -> None:
    assert bool(list(uses_of_time(ast.parse(source)))) is found


def test_each_module_has_its_own_test_file() -> None:
    """`src/barnabas/storage/log.py` is tested by `tests/storage/test_log.py`."""
    missing = []
    for path in source_files():
        name = name_of(path)
        if path.name in ("__init__.py", "__main__.py") or name in WITHOUT_OWN_TEST:
            continue
        test = TESTS / path.relative_to(SOURCE).parent / f"test_{path.name}"
        if not test.exists():
            missing.append(f"{name}: {test.relative_to(ROOT)} is missing")
    assert missing == []


def test_exemptions_are_still_needed() -> None:
    known = {name_of(path) for path in source_files()}
    assert [name for name in [*WITHOUT_OWN_TEST, *INIT_WITH_CODE, *USERS_OF_TIME] if name not in known] == []


def test_commands_in_the_docs_are_run_by_a_test() -> None:
    """Every block of commands in the docs names, in the comment before it, the test that runs it, or why none does.

    <!-- run: tests/cli/test_dump.py::test_the_readme_example -->   or   <!-- not run: it installs packages -->
    """
    complaints = []
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if not document.exists():
            continue
        lines = document.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if not re.match(r"^\s*```(sh|bash|shell|console)\b", line):
                continue
            where = f"{document.relative_to(ROOT)}:{number + 1}"
            before = next((text for text in reversed(lines[:number]) if text.strip()), "")
            if re.search(r"<!-- not run: \S.* -->", before):
                continue
            run = re.search(r"<!-- run: (?P<file>\S+)::(?P<test>\w+) -->", before)
            if run is None:
                complaints.append(f"{where} has commands, and no comment before them names the test that runs them")
            elif not (ROOT / run["file"]).exists():
                complaints.append(f"{where} names {run['file']}, which does not exist")
            elif f"def {run['test']}(" not in (ROOT / run["file"]).read_text(encoding="utf-8"):
                complaints.append(f"{where} names {run['test']}, which is not in {run['file']}")
    assert complaints == []


def test_importing_the_package_stays_cheap() -> None:
    """A tool that only imports `barnabas` pays neither for Spark nor for the codecs."""
    program = "import sys, barnabas; print(*sorted({'pyarrow', 'pyspark', 'cramjam'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []
