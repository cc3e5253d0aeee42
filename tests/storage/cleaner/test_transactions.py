"""Which records were aborted and which markers can go, batch by batch."""

from barnabas.storage.cleaner.transactions import CleanedTransactions
from barnabas.storage.transaction_index import AbortedTransaction
from tests.storage.builders import marker_header, producer_header


def test_records_of_an_aborted_transaction_are_known_until_its_marker() -> None:
    aborted = AbortedTransaction(7, 4, 9, 10)
    walk = CleanedTransactions([aborted])
    assert not walk.on_records(producer_header(7, 0, offset=2, transactional=True))
    assert walk.on_marker(marker_header(7, offset=3), is_commit=True) == (False, None)
    assert walk.on_records(producer_header(7, 0, offset=4, transactional=True))
    assert not walk.on_records(producer_header(8, 0, offset=5, transactional=True))
    assert not walk.on_records(producer_header(7, 0, offset=6))
    assert walk.on_marker(marker_header(7, offset=9), is_commit=False) == (False, aborted)
    assert not walk.on_records(producer_header(7, 0, offset=10, transactional=True))


def test_a_walk_that_starts_behind_a_marker_takes_nothing_for_aborted() -> None:
    walk = CleanedTransactions([AbortedTransaction(7, 4, 9, 10)])
    assert not walk.on_records(producer_header(7, 0, offset=10, transactional=True))
    assert walk.on_marker(marker_header(7, offset=11), is_commit=True) == (False, None)


def test_a_marker_whose_transaction_has_no_batch_can_go() -> None:
    walk = CleanedTransactions([AbortedTransaction(7, 4, 9, 10)])
    assert walk.on_marker(marker_header(8, offset=3), is_commit=True) == (True, None)
    assert walk.on_marker(marker_header(7, offset=9), is_commit=False) == (True, None)


def test_one_marker_does_not_serve_two_transactions() -> None:
    walk = CleanedTransactions([])
    walk.on_records(producer_header(7, 0, offset=1, transactional=True))
    assert walk.on_marker(marker_header(7, offset=2), is_commit=True) == (False, None)
    assert walk.on_marker(marker_header(7, offset=3), is_commit=True) == (True, None)


def test_two_aborted_transactions_of_one_producer_are_told_apart() -> None:
    first, second = AbortedTransaction(7, 0, 3, 4), AbortedTransaction(7, 5, 9, 10)
    walk = CleanedTransactions([second, first])
    assert walk.on_records(producer_header(7, 0, offset=1, transactional=True))
    assert walk.on_marker(marker_header(7, offset=3), is_commit=False) == (False, first)
    assert walk.on_marker(marker_header(7, offset=9), is_commit=False) == (True, None)
