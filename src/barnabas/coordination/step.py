"""What one step of a coordinator brings about, and what a coordinator sees of the world.

    request, time --> machine --> Step(records, replies)

Rule 1: a machine has changed its state when it returns a Step; there is no way back. Whoever carries the step out
appends the records as one batch, all or none, and sends the replies when the batch is where it is safe. If the batch
can not be appended, the machine is thrown away and made anew from its log, and every reply that it owed is an error.
Rule 2: a reply that depends on state is a reply of that state: also one without records is sent only when everything
appended before it is safe. So nobody ever sees what a crash can take back.
Rule 3: a machine has no clock, no threads, no randomness of its own: time comes with every call, and `next_deadline_ms`
says when it wants to be asked again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic: its key, and its value or None, which deletes what the key names."""

    key: Any
    value: Any | None


class Reply(NamedTuple):
    """An answer to a request that was given under a ticket: any object, the machine only hands it back."""

    ticket: Any
    message: Any


@dataclass(slots=True)
class Step:
    """What is to be done now."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    @property
    def has_consequences(self) -> bool:
        """Whether there is anything to do when the records are safe."""
        return bool(self.replies)

    def add(self, other: "Step") -> None:
        """Take in what another part brought about, after what is here."""
        self.records += other.records
        self.replies += other.replies


class Client(NamedTuple):
    """Who sent a request."""

    client_id: str
    client_host: str
    """As groups show it: a slash and the address."""


class TopicDescription(NamedTuple):
    """A topic, as far as coordinators need to know it."""

    name: str
    topic_id: bytes
    partition_count: int


class Topics(Protocol):
    """The topics there are at this moment."""

    def by_name(self, name: str) -> TopicDescription | None:
        """Return a topic by its name."""
        ...

    def by_id(self, topic_id: bytes) -> TopicDescription | None:
        """Return a topic by its id."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        ...
