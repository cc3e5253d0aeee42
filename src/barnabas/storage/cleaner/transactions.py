"""What a clean has to know of transactions: which records were aborted, and which markers nobody needs any more.

Batches are told in the order of the log. Aborted transactions come from the transaction indexes; whatever else is
transactional was committed, because a clean stays below the last stable offset.

Rule 1: records of an aborted transaction go, and are never the last of their key.
Rule 2: a marker can go when the walk came by no batch of its transaction, not even an empty one. As batches of this
walk are only about to go, that is one clean after the last of them went.
Rule 3: an aborted transaction stays in the index as long as its marker is needed.
"""

import heapq
from collections.abc import Iterable

from barnabas.records.batch import BatchHeader
from barnabas.storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """Follows the transactions along one walk over a log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = [(one.first_offset, one.last_offset, one) for one in aborted]
        heapq.heapify(self._waiting)
        # The aborted transactions that the walk is inside of, by producer, and whether it saw a batch of them.
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        # The producers of committed transactions that the walk saw a batch of.
        self._committed: set[int] = set()

    def _advance(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            aborted = heapq.heappop(self._waiting)[2]
            self._aborted[aborted.producer_id] = aborted
            self._seen.discard(aborted.producer_id)

    def on_records(self, batch: BatchHeader) -> bool:
        """Take in a batch of records, and tell whether its transaction was aborted."""
        if not batch.is_transactional:
            return False
        self._advance(batch.last_offset)
        aborted = self._aborted.get(batch.producer_id)
        # A walk that starts behind the marker of an aborted transaction does not come by it.
        if aborted is None or batch.base_offset > aborted.last_offset:
            self._committed.add(batch.producer_id)
            return False
        self._seen.add(batch.producer_id)
        return True

    def on_marker(self, batch: BatchHeader, *, is_commit: bool) -> tuple[bool, AbortedTransaction | None]:
        """Take in a marker: whether it can go, and the aborted transaction that it ends and that is still needed."""
        self._advance(batch.last_offset)
        if is_commit:
            is_needed = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not is_needed, None
        aborted = self._aborted.pop(batch.producer_id, None)
        is_needed = batch.producer_id in self._seen
        self._seen.discard(batch.producer_id)
        return not is_needed, aborted if is_needed else None
