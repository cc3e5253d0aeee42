"""Waits that grow, up to a deadline."""

import pytest

from barnabas.client.options import ClientOptions
from barnabas.client.retry import Retry
from barnabas.clock import ManualClock


def test_waits_double_up_to_the_maximum_and_end_at_the_deadline() -> None:
    clock = ManualClock()
    options = ClientOptions(retry_backoff_ms=100, retry_backoff_max_ms=300, default_api_timeout_ms=1_000)
    retry = Retry(clock, options)
    moments = []
    with pytest.raises(KeyError, match="the reason"):
        while True:
            retry.pause(KeyError("the reason"))
            moments.append(round(clock.monotonic_seconds(), 3))
    assert moments == [0.1, 0.3, 0.6, 0.9, 1.0]
    assert retry.seconds_left == 0.0


def test_an_operation_may_have_its_own_time() -> None:
    retry = Retry(ManualClock(), ClientOptions(), timeout_ms=5_000)
    assert retry.seconds_left == 5.0
