"""Small files on whatever file system Spark reads and writes: the machine's own, HDFS, S3 and the like, through Hadoop.

Rule 1: a file is there whole or not at all: it is written under another name, and renamed when it is complete.
Rule 2: a file that is there is never replaced; who comes second is told.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

from barnabas.spark.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SPECIAL = re.compile(r"[\\{}\[\]*?]")

DRAFT = ".tmp"
"""How the names of files end that are not complete yet, or never became so."""


class ExistsError(Exception):
    """Somebody else has written this file before."""


class Files:
    """The file system of one folder, and paths below it."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        jvm = spark._jvm
        if jvm is None:
            raise PipelineError("archives need a session with a driver of its own, and not one of Spark Connect")
        self._jvm: Any = jvm
        self._fs_package: Any = jvm.org.apache.hadoop.fs
        configuration = spark._jsc.hadoopConfiguration()
        try:
            path = self._fs_package.Path(folder)
            self._system = path.getFileSystem(configuration)
            self._root = self._system.makeQualified(path)
            self._context = self._fs_package.FileContext.getFileContext(self._root.toUri(), configuration)
        except Exception as error:  # Java's, of many kinds: no such scheme, no such host, not allowed.
            raise PipelineError(f"{folder} can not be used: {_said(error)}") from error

    @property
    def folder(self) -> str:
        """The folder as Spark takes it."""
        return str(self._root.toString())

    def path(self, name: str) -> str:
        """Return the path of a file below the folder as Spark takes it."""
        return str(self._path(name).toString())

    def pattern(self, name: str) -> str:
        """Return the same as Spark's readers take it, which would see patterns in some names."""
        return _SPECIAL.sub(r"\\\g<0>", self.path(name))

    def _path(self, name: str) -> Any:
        return self._fs_package.Path(self._root, name)

    def exists(self, name: str = ".") -> bool:
        """Tell whether there is such a file or folder."""
        return bool(self._system.exists(self._path(name)))

    def is_file(self, name: str = ".") -> bool:
        """Tell whether there is a file, and not a folder."""
        path = self._path(name)
        return bool(self._system.exists(path)) and bool(self._system.getFileStatus(path).isFile())

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder below, in order; none where there is no such folder."""
        path = self._path(folder)
        if not self._system.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self._system.listStatus(path))

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files below a folder, by their path below the root."""
        path = self._path(folder)
        if not self._system.exists(path):
            return {}
        root = len(self.folder.rstrip("/")) + 1
        found = {}
        walk = self._system.listFiles(path, True)
        while walk.hasNext():
            status = walk.next()
            found[str(status.getPath().toString())[root:]] = int(status.getLen())
        return found

    def read(self, name: str) -> str:
        """Return the text of a file; raises PipelineError."""
        try:
            stream = self._system.open(self._path(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Exception as error:  # Java's.
            raise PipelineError(f"{self.path(name)} can not be read: {_said(error)}") from error

    def create(self, name: str, text: str) -> None:
        """Write a file that must not exist yet; raises ExistsError."""
        if self.exists(name):
            raise ExistsError(self.path(name))
        draft = self._path(f"{name}.{uuid.uuid4().hex}{DRAFT}")
        stream = self._system.create(draft)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()
        try:
            rename = self._jvm.org.apache.hadoop.fs.Options.Rename
            options = self._jvm.java.lang.reflect.Array.newInstance(rename.NONE.getClass(), 1)
            self._jvm.java.lang.reflect.Array.set(options, 0, rename.NONE)
            self._context.rename(draft, self._path(name), options)
        except Exception as error:  # Java's.
            self._system.delete(draft, False)
            if self.exists(name):
                raise ExistsError(self.path(name)) from error
            raise PipelineError(f"{self.path(name)} can not be written: {_said(error)}") from error

    def move(self, name: str, target: str) -> None:
        """Give a file or a folder another path below the root, where nothing is yet.

        Raises:
            ExistsError: There is something.
            PipelineError: It can not be done.
        """
        if self.exists(target):
            raise ExistsError(self.path(target))
        try:
            self._system.mkdirs(self._path(target).getParent())
            is_moved = bool(self._system.rename(self._path(name), self._path(target)))
        except Exception as error:  # Java's.
            raise PipelineError(f"{self.path(name)} can not be moved to {target}: {_said(error)}") from error
        if not is_moved:
            raise PipelineError(f"{self.path(name)} can not be moved to {self.path(target)}")

    def modified_ms(self, name: str) -> int:
        """Return when a file or folder was last changed."""
        return int(self._system.getFileStatus(self._path(name)).getModificationTime())

    def local_path(self, name: str) -> str | None:
        """Return the path as programs without Hadoop take it; None where the folder is not on this machine's disks."""
        uri = self._path(name).toUri()
        return str(uri.getPath()) if uri.getScheme() in (None, "file") else None

    def delete(self, name: str) -> None:
        """Remove a file or a folder with all that is in it, if it is there."""
        self._system.delete(self._path(name), True)


def _said(error: Exception) -> str:
    """Return what Java said, without the stack."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    return next(iter(text.splitlines()), type(error).__name__)
