"""The pipeline on a cluster of two workers: what runs here in one process has to pickle, and to run without the driver.

A process can have one session only, so another one runs some of the tests of this folder on `local-cluster`: a master
and two workers, each with an executor in a process of its own.
"""

import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MASTER = "local-cluster[2,1,1024]"
SECONDS_MAX = 500

SELECTED = (
    "tests/spark/source/test_reader.py::test_every_kind_of_record_is_the_same_row[barnabas-read_committed]",
    "tests/spark/source/test_stream_reader.py::test_a_query_of_sparks_own_connector_goes_on_with_ours",
    "tests/spark/sink/test_writer.py::test_both_sinks_write_the_same[our_servers]",
    "tests/spark/sink/test_stream_writer.py::test_a_replayed_batch_is_not_written_again",
    "tests/spark/segments/test_reader.py::test_spark_reads_the_same_rows_in_parallel",
    "tests/spark/segments/test_writer.py::test_tasks_that_fail_and_are_tried_again_leave_nothing_behind",
    "tests/spark/segments/test_writer.py::test_files_are_loaded_as_a_frame_of_them_is[INT96]",
    "tests/spark/archives/test_topic_files.py::test_files_are_like_those_that_spark_writes[zstd]",
    "tests/spark/jobs/test_commands.py::test_ingest_archive_and_replay",
    "tests/spark/jobs/test_profile.py::test_the_figures_of_a_topic",
    "tests/spark/jobs/test_verify.py::test_sound_directories_and_damaged_ones",
)


@pytest.mark.xdist_group("a cluster")
@pytest.mark.usefixtures("connector_jars")  # Only for its rule of skipping where there is no Java.
def test_some_of_everything_runs_on_a_cluster(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    finished = subprocess.run(
        [sys.executable, "-X", "dev", "-m", "pytest", "-q", "-p", "no:randomly", f"--junit-xml={report}", *SELECTED],
        cwd=ROOT,
        env=os.environ | {"BARNABAS_TEST_MASTER": MASTER},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-5000:]
    (suite,) = xml.etree.ElementTree.parse(report).getroot()
    assert {name: suite.get(name) for name in ("tests", "errors", "failures", "skipped")} == {
        "tests": str(len(SELECTED)),
        "errors": "0",
        "failures": "0",
        "skipped": "0",
    }
