"""The stand-in for Cython leaves functions and values as they are."""

from types import ModuleType

from barnabas.records import cython_shim


def test_decorators_change_nothing() -> None:
    def function() -> int:
        return 1

    assert cython_shim.cfunc(function) is function
    assert cython_shim.inline(function) is function
    assert cython_shim.cclass(ModuleType) is ModuleType
    assert cython_shim.final(ModuleType) is ModuleType
    assert cython_shim.nogil(function) is function
    assert cython_shim.exceptval(check=False)(function) is function


def test_values_pass_through_unchanged() -> None:
    assert cython_shim.declare(cython_shim.longlong, 2**70) == 2**70
    assert cython_shim.cast(cython_shim.ulonglong, -1) == -1
    with cython_shim.nogil:
        assert cython_shim.compiled is False


def test_the_kernel_runs_on_it(fallback: ModuleType) -> None:
    assert fallback.cython is cython_shim
    assert fallback.COMPILED is False
