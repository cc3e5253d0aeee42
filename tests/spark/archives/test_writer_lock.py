"""One writer at a time, and the next one as soon as that is gone."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from barnabas.spark.archives.files import Files
from barnabas.spark.archives.writer_lock import LOCK, writer_lock
from barnabas.spark.errors import PipelineError


def files_at(path: Path | None) -> Files:
    files = MagicMock(spec=Files)
    files.folder = "lake"
    files.local_path.return_value = None if path is None else str(path / LOCK)
    return files


def test_the_second_writer_is_told(tmp_path: Path) -> None:
    with writer_lock(files_at(tmp_path)) as is_sure:
        assert is_sure
        with pytest.raises(PipelineError, match="another job is at work on lake"), writer_lock(files_at(tmp_path)):
            pass
    with writer_lock(files_at(tmp_path)):
        pass


def test_elsewhere_nobody_knows() -> None:
    with writer_lock(files_at(None)) as is_sure:
        assert not is_sure
