"""Takes away files that are not part of an archive: of attempts that were killed, and those that were replaced.

Rule 1: an attempt's folder is deleted only when nobody can be writing to it: by the one writer that has the lock, or
when it has not changed for a day. One that was committed has no writer any more.
Rule 2: files that a commit has taken out are deleted an hour after that commit, because queries may be reading them.
"""

from collections.abc import Collection, Iterable, Sequence

from barnabas.clock import Clock
from barnabas.spark.archives.archive import Archive
from barnabas.spark.archives.files import DRAFT
from barnabas.spark.archives.manifest import COMMITS, DATA, DEAD_LETTERS, PARQUET, Commit, current_files

REMOVED_KEPT_MS = 3_600_000
ATTEMPT_KEPT_MS = 24 * 3_600_000


def needed_files(commits: Sequence[Commit], now_ms: int) -> set[str]:
    """Return the files that are part of the archive, or were so a short while ago."""
    letters = {name for commit in commits for name in commit.dead_letter_files}
    recent = {name for commit in commits if commit.timestamp_ms > now_ms - REMOVED_KEPT_MS for name in commit.removed}
    return {*current_files(commits), *letters, *recent}


def unneeded_folders(folders: Iterable[str], needed: Collection[str]) -> list[str]:
    """Return the folders of attempts that have no file that is needed."""
    with_some = {name.split("/")[1] for name in needed}
    return [folder for folder in folders if folder not in with_some]


def clean(archive: Archive, clock: Clock, *, is_only_writer: bool) -> int:
    """Delete what is not part of the archive, and return how many folders and files that were."""
    files, commits, now_ms = archive.files, archive.commits(), clock.now_ms()
    needed = needed_files(commits, now_ms)
    written = {name.split("/")[1] for commit in commits for name in (*commit.files, *commit.dead_letter_files)}
    deleted = 0
    for parent in (DATA, DEAD_LETTERS) if archive.description.table_format == PARQUET else (DEAD_LETTERS,):
        for name in unneeded_folders(files.names(parent), needed):
            path = f"{parent}/{name}"
            if is_only_writer or name in written or files.modified_ms(path) <= now_ms - ATTEMPT_KEPT_MS:
                files.delete(path)
                deleted += 1
    for name in files.names(COMMITS) if is_only_writer else ():
        if name.endswith(DRAFT):
            files.delete(f"{COMMITS}/{name}")
            deleted += 1
    there = set(files.names(DATA))
    for name in sorted({name for commit in commits for name in commit.removed} - needed):
        if name.split("/")[1] in there and files.exists(name):
            files.delete(name)
            deleted += 1
    return deleted
