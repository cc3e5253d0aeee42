"""The decisions about batches of a streaming query: files beside Spark's own, in the folder of its checkpoint.

    CHECKPOINT/metadata                            Spark's; the id of the query is in it
    CHECKPOINT/offsets/7                           Spark's; what batch 7 is, there before its tasks run and for replays
    CHECKPOINT/barnabas-sink/7.decided             batch 7 is to be committed: these transactions, and no others
    CHECKPOINT/barnabas-sink/7.finished            they are committed (the same file under another name)

Only the driver reads and writes here; tasks are told. The folder may be on any file system that Arrow knows.

Rule 1: a decision is there as a whole or not at all, and on the disk before anything is done about it.
Rule 2: a decision is never changed: it is finished, or withdrawn.
Rule 3: as many finished ones are kept as Spark keeps batches of its own, so that a query that is set back to one of
those does not write it again.
Rule 4: a decision says of which query it is, and which plan of the batch it is about (a hash of Spark's offsets/7). One
that does not fit what the checkpoint says now is refused: to heed it would lose rows, to overrule it would double some.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs

from barnabas.client.sender import TransactionHandle
from barnabas.spark.errors import OptionError, PipelineError

FOLDER = "barnabas-sink"
DECIDED = "decided"
FINISHED = "finished"
KEPT = 100

_VERSION = 1
_TEMPORARY = ".tmp"
# Hadoop's names of file systems that Arrow has under another.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be committed as a batch."""

    batch_id: int
    query_id: str
    plan_hash: str
    transactions: tuple[TransactionHandle, ...]
    is_finished: bool = False


class Decisions:
    """The decisions of one query; `plan_of` tells what a batch is where Spark's own files do not."""

    def __init__(self, checkpoint_location: str, plan_of: Callable[[int], str] | None = None) -> None:
        self._location = checkpoint_location
        self._plan_of = plan_of
        try:
            self._files, root = _open(checkpoint_location)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise OptionError(
                "checkpointLocation", f"is {checkpoint_location!r}, which can not be opened: {error}"
            ) from None
        self._metadata = f"{root}/metadata"
        self._offsets = f"{root}/offsets"
        self._folder = f"{root}/{FOLDER}"

    def query_id(self) -> str:
        """Return the id that Spark gave the query; it stays the same over restarts."""
        try:
            with self._files.open_input_stream(self._metadata) as stream:
                return str(json.loads(stream.read())["id"])
        except FileNotFoundError:
            raise OptionError(
                "checkpointLocation",
                f"is {self._location!r}, where this process sees no file 'metadata' of the query; "
                "give the location with its scheme, as in hdfs://HOST/PATH",
            ) from None

    def current_batch(self) -> int | None:
        """Return the batch that Spark planned last, which is the one that runs or runs next."""
        found = self._files.get_file_info(fs.FileSelector(self._offsets, allow_not_found=True))
        return max((int(info.base_name) for info in found if info.base_name.isdecimal()), default=None)

    def plan_hash(self, batch_id: int) -> str:
        """Return what tells the batch, as it is planned now, from any other plan of it."""
        if self._plan_of is not None:
            return hashlib.sha256(self._plan_of(batch_id).encode()).hexdigest()
        path = f"{self._offsets}/{batch_id}"
        try:
            with self._files.open_input_stream(path) as stream:
                return hashlib.sha256(stream.read()).hexdigest()
        except FileNotFoundError:
            raise PipelineError(
                f"{path} is not there, where Spark says what batch {batch_id} is, so it can not be written exactly once"
            ) from None

    def path(self, batch_id: int, state: str = DECIDED) -> str:
        """Return where a decision is."""
        return f"{self._folder}/{batch_id}.{state}"

    def batch_ids(self) -> dict[int, str]:
        """Return the batches about which there is a decision, and its state."""
        found: dict[int, str] = {}
        for info in self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True)):
            number, _, state = info.base_name.partition(".")
            if number.isdecimal() and state in (DECIDED, FINISHED):
                # Where a file system copies instead of renaming, both may be there after a crash.
                found[int(number)] = FINISHED if FINISHED in (state, found.get(int(number))) else DECIDED
        return found

    def read(self, batch_id: int) -> Decision | None:
        """Return the decision about a batch, or None while there is none; raises PipelineError for that of another."""
        decision = self.read_any(batch_id)
        if decision is None:
            return None
        path = self.path(batch_id, FINISHED if decision.is_finished else DECIDED)
        if (query_id := self.query_id()) != decision.query_id:
            raise PipelineError(
                f"{path} is about batch {batch_id} of another query ({decision.query_id}) than the one that has this "
                f"checkpoint now ({query_id}); to have this query write all its batches, whatever the other one wrote, "
                f"delete the folder {self._folder} and start it again, or give it a checkpoint of its own"
            )
        if self.plan_hash(batch_id) != decision.plan_hash:
            raise PipelineError(
                f"{path} is about batch {batch_id} as it was planned before, but it has been planned anew since, and "
                "may have other rows; to have it written as it is now, with those rows twice that it had before, "
                "delete that file and start again"
            )
        return decision

    def read_any(self, batch_id: int) -> Decision | None:
        """Return the decision about a batch, be it of this query and plan or not, or None while there is none."""
        state = self.batch_ids().get(batch_id)
        if state is None:
            return None
        path = self.path(batch_id, state)
        with self._files.open_input_stream(path) as stream:
            content = stream.read()
        try:
            fields: dict[str, Any] = json.loads(content)
            decision = Decision(
                batch_id=batch_id,
                query_id=fields["queryId"],
                plan_hash=fields["planHash"],
                transactions=tuple(TransactionHandle(**each) for each in fields["transactions"]),
                is_finished=state == FINISHED,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise PipelineError(f"{path} is not a decision of this sink: {error}") from None
        if fields.get("version") != _VERSION or fields.get("batchId") != batch_id:
            raise PipelineError(
                f"{path} is not a decision about batch {batch_id} that this version of the sink can read"
            )
        return decision

    def decide(self, batch_id: int, transactions: tuple[TransactionHandle, ...]) -> Decision:
        """Write a decision down; from here on the batch is these transactions.

        Raises:
            PipelineError: There is a decision about the batch, which somebody else made.
        """
        decision = Decision(
            batch_id=batch_id,
            query_id=self.query_id(),
            plan_hash=self.plan_hash(batch_id),
            transactions=transactions,
        )
        fields = {
            "version": _VERSION,
            "batchId": batch_id,
            "queryId": decision.query_id,
            "planHash": decision.plan_hash,
            "transactions": [asdict(each) for each in transactions],
        }
        self._files.create_dir(self._folder, recursive=True)
        path = self.path(batch_id)
        try:
            self._create(path, json.dumps(fields, indent=1).encode())
        except FileExistsError:
            raise self._decided_by_another(batch_id) from None
        # Another driver may even have finished, and so have taken its file out of the way of ours.
        if self._exists(self.path(batch_id, FINISHED)):
            self._files.delete_file(path)
            raise self._decided_by_another(batch_id)
        return decision

    def finish(self, batch_id: int) -> None:
        """Note that everything that was decided is done."""
        self._files.move(self.path(batch_id), self.path(batch_id, FINISHED))

    def withdraw(self, batch_id: int) -> None:
        """Forget a decision of which nothing has come true, nor ever will."""
        self._files.delete_file(self.path(batch_id))

    def prune(self, batch_id: int) -> None:
        """Remove what no restart after this batch can ask for."""
        for info in self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True)):
            number, _, state = info.base_name.partition(".")
            is_old = number.isdecimal() and int(number) <= batch_id - KEPT
            if is_old and (state == FINISHED or state.endswith(_TEMPORARY)):
                self._files.delete_file(info.path)

    def _decided_by_another(self, batch_id: int) -> PipelineError:
        return PipelineError(
            f"another driver has decided about batch {batch_id} just now ({self.path(batch_id)}): "
            f"only one query at a time can use the checkpoint {self._location}"
        )

    def _exists(self, path: str) -> bool:
        return bool(self._files.get_file_info(path).type != fs.FileType.NotFound)

    def _create(self, path: str, content: bytes) -> None:
        """Write a file that is there as a whole or not at all; raises FileExistsError."""
        temporary = f"{path}.{uuid.uuid4().hex}{_TEMPORARY}"
        if isinstance(self._files, fs.LocalFileSystem):
            _create_durably(temporary, path, content)
            return
        # Other file systems have what was closed on their disks. Not all of them can create a name only if it is free,
        # so that two drivers at the very same time are told apart by the coordinator alone, which fences one of them.
        if self._exists(path):
            raise FileExistsError(path)
        with self._files.open_output_stream(temporary) as stream:
            stream.write(content)
        self._files.move(temporary, path)


def _open(location: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path on it.

    Hadoop writes file:/path where others have file:///path, and takes the path as it is: % and # mean themselves.
    """
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return fs.LocalFileSystem(), os.path.abspath(location)
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.strip("/")
    files, path = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}:{rest}")
    return files, path.rstrip("/")


def _create_durably(temporary: str, path: str, content: bytes) -> None:
    with open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        # Unlike renaming, this refuses a name that is taken.
        os.link(temporary, path)
    except FileExistsError:
        os.unlink(temporary)
        raise
    except OSError:  # A disk without links.
        if os.path.exists(path):
            os.unlink(temporary)
            raise FileExistsError(path) from None
        os.rename(temporary, path)
    else:
        os.unlink(temporary)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
