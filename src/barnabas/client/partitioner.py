"""Which partition a record goes to, when nobody says: by its key where it has one, as Java's clients do it.

Rule 1: a key lands where a Java producer would put it. Consumers that join topics by key depend on that.
Rule 2: records without a key stay together for a batch, and then go on to another partition (KIP-480).
"""

import random

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of Austin Appleby's MurmurHash2, with the seed that Kafka gives it, as unsigned."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key."""
    return (murmur2(key) & _POSITIVE) % partition_count


class StickyPartitions:
    """The partition of each topic that records without a key go to at the moment."""

    def __init__(self, generator: random.Random | None = None) -> None:
        self._generator = random.Random() if generator is None else generator
        self._current: dict[str, int] = {}

    def choose(self, topic: str, partition_count: int) -> int:
        """Return where the next record goes."""
        current = self._current.get(topic)
        if current is None or current >= partition_count:
            current = self._current[topic] = self._generator.randrange(partition_count)
        return current

    def move_on(self, topic: str, partition: int, partition_count: int) -> None:
        """Take another partition from now on, because this one's batch is full."""
        if self._current.get(topic) == partition:
            self._current[topic] = (partition + 1) % partition_count
