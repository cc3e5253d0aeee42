"""`barnabas verify DIR...`: checks log directories, or folders of single partitions, and changes nothing."""

import argparse
import contextlib
import json
import os
import sys
from dataclasses import dataclass, field

from barnabas.cli.progress import Progress
from barnabas.model import TopicPartition
from barnabas.storage.files import Files, OsFiles
from barnabas.storage.log_directory import FolderKind, parse_folder
from barnabas.storage.segment import LOG_SUFFIX
from barnabas.storage.verifier import (
    Fault,
    Report,
    holds_logs,
    partition_folders,
    verify_checkpoints,
    verify_partition,
    was_shut_down_cleanly,
)

DESCRIPTION = """\
Check every batch, record, index, snapshot and checkpoint of log directories, Kafka's or ours. Nothing is changed.
Each fault is a line with path, position and reason. The exit code is 0 when there is none, 1 when there is one, and 2
when a DIR is not a folder, or no log directory: then nothing is checked.
After a crash, the torn end of a log is such a fault: the next start of the broker cuts it off."""
EXAMPLES = """\
examples:
  barnabas verify data               every partition of a log directory
  barnabas verify data/orders-0      one partition
  barnabas verify --json data        faults and summary as JSON, one object a line
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    parser.add_argument("directories", nargs="+", metavar="DIR", help="a log directory, or the folder of a partition")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


@dataclass(slots=True)
class Summary:
    """What was checked, in all."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    faults: list[Fault] = field(default_factory=list)


def run(arguments: argparse.Namespace) -> int:
    """Check every folder and print a summary."""
    files = OsFiles()
    summary = Summary()

    def report(fault: Fault) -> None:
        progress.finish()
        summary.faults.append(fault)
        print(json.dumps({"fault": fault._asdict()}) if arguments.json else str(fault), flush=True)

    paths = [os.path.abspath(path) for path in arguments.directories]
    refusals = [f"{path} {reason}" for path in paths if (reason := _refusal(files, path))]
    if refusals:
        for refusal in refusals:
            print(f"barnabas verify: {refusal}", file=sys.stderr)
        return 2
    progress = Progress("verify", sum(map(_log_bytes, paths)))
    for path in paths:
        _verify(files, path, summary, progress, report)
    progress.finish()
    _print_summary(summary, progress.seconds, arguments.json)
    return 1 if summary.faults else 0


def _refusal(files: Files, path: str) -> str | None:
    """Return why there is nothing to check, or None when there is."""
    if not os.path.isdir(path):
        return "is not a folder"
    if not holds_logs(files, path):
        return "is not a log directory: there is no partition, no checkpoint and no meta.properties in it"
    return None


def _log_bytes(path: str) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            if name.endswith(LOG_SUFFIX):
                # A file may be gone by now, when a broker is at work; that is noticed when it is to be read.
                with contextlib.suppress(OSError):
                    total += os.path.getsize(os.path.join(folder, name))
    return total


def _verify(files: Files, path: str, summary: Summary, progress: Progress, report: Report) -> None:
    folders = partition_folders(files, path, report)
    ends: dict[TopicPartition, int] = {}
    is_clean = was_shut_down_cleanly(files, path)

    def advance(checked: str, size: int) -> None:
        progress.advance(size, os.path.relpath(checked, path))

    for folder in folders:
        summary.partitions += 1
        partition = parse_folder(os.path.basename(folder))
        is_known, next_offset = False, 0
        try:
            for seen in verify_partition(files, folder, report, is_clean=is_clean, advance=advance):
                summary.segments += 1
                summary.batches += seen.batches
                summary.records += seen.records
                summary.bytes += seen.size
                is_known = seen.is_complete
                next_offset = seen.next_offset
        except OSError as error:
            report(Fault(error.filename or folder, 0, f"the file can not be read: {error.strerror}"))
            is_known = False
        # Where a log ends is not known behind damage, and then no checkpoint can be wrong about it.
        if is_known and partition is not None and partition.kind is FolderKind.CURRENT:
            ends[partition.partition] = next_offset
    if folders != [path]:
        verify_checkpoints(files, path, ends, report)


def _print_summary(summary: Summary, seconds: float, as_json: bool) -> None:
    counts = {
        "partitions": summary.partitions,
        "segments": summary.segments,
        "batches": summary.batches,
        "records": summary.records,
        "bytes": summary.bytes,
        "faults": len(summary.faults),
        "seconds": round(seconds, 3),
    }
    if as_json:
        print(json.dumps({"summary": counts}))
        return
    words = [_counted(counts[name], name) for name in ("partitions", "segments", "batches", "records")]
    faults = _counted(counts["faults"], "faults") if summary.faults else "no faults"
    print(f"{', '.join(words)}, {summary.bytes / 1e6:,.1f} MB in {seconds:.1f} s: {faults}")


def _counted(count: float, plural: str) -> str:
    """Return a number and what it counts: 1 batch, 2 batches."""
    singular = plural.removesuffix("es") if plural == "batches" else plural.removesuffix("s")
    return f"{count:,} {singular if count == 1 else plural}"
