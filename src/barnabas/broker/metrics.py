"""What is counted while requests are served: per API, per topic and in all.

Nothing here is shown to anybody yet; the counters are kept so that whoever shows them finds them.

Rule 1: counting is additions of integers on objects that the hot path holds already: no lookup by name, no lock.
"""

from collections import defaultdict

BUCKETS = 32


class Histogram:
    """Durations by powers of two, in microseconds: bucket n has those of n bits."""

    __slots__ = ("buckets", "count", "max_seconds", "sum_seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (BUCKETS + 1)
        self.count = 0
        self.sum_seconds = 0.0
        self.max_seconds = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a duration, or several that are the same."""
        self.count += times
        self.sum_seconds += seconds * times
        self.buckets[min(int(seconds * 1_000_000).bit_length(), BUCKETS)] += times
        if seconds > self.max_seconds:
            self.max_seconds = seconds

    def percentile_us(self, share: float) -> int:
        """Return the upper bound, in microseconds, of the bucket that a share of all durations do not exceed."""
        wanted = self.count * share
        seen = 0
        for bits, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                return int((1 << bits) - 1)
        return 0


class ApiStats:
    """The counters of one API: RequestsPerSec, ErrorsPerSec and TotalTimeMs of Kafka."""

    __slots__ = ("errors", "requests", "time")

    def __init__(self) -> None:
        self.requests = 0
        self.errors: defaultdict[int, int] = defaultdict(int)
        self.time = Histogram()


class TopicStats:
    """The counters of one topic, or of all: BytesInPerSec, MessagesInPerSec and their kin."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "messages_in",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.messages_in = 0
        self.total_produce_requests = 0
        self.failed_produce_requests = 0
        self.total_fetch_requests = 0
        self.failed_fetch_requests = 0


class BrokerTopicStats:
    """The counters of all topics."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicStats] = {}

    def topic(self, name: str) -> TopicStats:
        """Return the counters of a topic, made when it is first met."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicStats()
        return found

    def forget(self, name: str) -> None:
        """Drop the counters of a topic that was deleted."""
        self.topics.pop(name, None)

    def all_topics(self) -> TopicStats:
        """Return the sums over all topics."""
        total = TopicStats()
        for stats in self.topics.values():
            for counter in TopicStats.__slots__:
                setattr(total, counter, getattr(total, counter) + getattr(stats, counter))
        return total
