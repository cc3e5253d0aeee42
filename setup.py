"""Builds the optional compiled kernel; everything else about the package is in pyproject.toml.

The kernel is a Python file that also runs uncompiled, only slower. Where it cannot be compiled (no Cython, no C
compiler), the installation goes on and says so in one line. BARNABAS_KERNEL=no leaves it uncompiled on purpose.
"""

import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNELS = (
    "broker/produce_frame",
    "records/batch_walk",
    "records/columns",
    "records/compaction",
    "records/kernel",
    "storage/log_end",
)


class BuildOptionalExtension(build_ext):
    """Compiles the kernel, and turns a failure into one line instead of a failed installation."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:  # noqa: BLE001 (a compiler can fail in any way, and none of them may stop the installation)
            reason = " ".join(str(error).split())[:100]
            print(
                f"barnabas: {ext.name} is not compiled and will run as plain Python, slower ({reason})", file=sys.stderr
            )


def kernel_extensions() -> list[Extension]:
    """The kernel as a C extension, or nothing where Cython is missing or the kernel is not wanted."""
    if os.environ.get("BARNABAS_KERNEL") == "no":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        print(
            "barnabas: without Cython the kernel is not compiled and will run as plain Python, slower", file=sys.stderr
        )
        return []
    kernels = [
        Extension(
            f"barnabas.{name.replace('/', '.')}",
            [f"src/barnabas/{name}.py"],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for name in KERNELS
    ]
    extensions: list[Extension] = cythonize(kernels, quiet=True, language_level=3)
    return extensions


setup(ext_modules=kernel_extensions(), cmdclass={"build_ext": BuildOptionalExtension})
