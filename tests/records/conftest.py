"""The two kernels: the compiled extension, and the same source run as plain Python without Cython installed."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

import barnabas
from barnabas.records import kernel


def load_fallback(name: str = "kernel", package: str = "records") -> ModuleType:
    """A compiled module from its source, under another name, and with the import of Cython made to fail."""
    source = Path(barnabas.__file__).parent / package / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"barnabas_{name}_fallback", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    installed = sys.modules.get("cython")
    sys.modules["cython"] = None  # type: ignore[assignment]
    try:
        spec.loader.exec_module(module)
    finally:
        if installed is None:
            del sys.modules["cython"]
        else:
            sys.modules["cython"] = installed
    return module


@pytest.fixture(scope="session")
def fallback() -> ModuleType:
    return load_fallback()


@pytest.fixture(scope="session")
def compiled() -> ModuleType:
    if not kernel.COMPILED:
        if os.environ.get("CI") == "true":
            pytest.fail("CI=true, and the kernel is not compiled.")
        pytest.skip("The kernel is not compiled here: `make setup` says why.")
    return kernel


@pytest.fixture(scope="session", params=["compiled", "fallback"])
def any_kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Each test that takes this runs once with either kernel."""
    module: ModuleType = request.getfixturevalue(request.param)
    return module
