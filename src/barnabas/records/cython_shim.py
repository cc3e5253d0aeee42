"""What `kernel` needs of the `cython` module at run time where Cython is not installed.

A compiled kernel never imports this. An uncompiled one calls a few names for their effect on the compiler; here they
have none, so that the same source runs as ordinary Python. Its annotations are never evaluated.

It does not coerce integers: the kernel keeps every value inside 64 bits by itself.
"""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

compiled = False

# The C types that appear outside annotations, where only their names matter.
int = int
longlong = int
uint = int
ulonglong = int
bint = bool
Py_ssize_t = int
void = None


class _Const:
    """Serves `cython.const[cython.uchar][::1]` outside of annotations."""

    def __getitem__(self, _: object) -> "_Const":
        return self


const = uchar = _Const()


class _Nogil:
    """Serves both as `with cython.nogil:` and as `@cython.nogil`."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        return None

    def __call__(self, function: F) -> F:
        return function


nogil = _Nogil()


def cfunc(function: F) -> F:
    return function


def cclass(kind: type[T]) -> type[T]:
    return kind


def final(kind: type[T]) -> type[T]:
    return kind


def inline(function: F) -> F:
    return function


def exceptval(*, check: bool) -> Callable[[F], F]:
    del check
    return lambda function: function


def declare(kind: object, value: Any = 0, *, visibility: str = "private") -> Any:
    del kind, visibility
    return value


def cast(kind: object, value: T) -> T:
    del kind
    return value
