"""A member of a classic group, and what its subscription says.

What a member sends with its protocols belongs to the members, and is not looked into, with one exception: consumers
begin it with the topics that they read, in all versions of their protocol (coordination/consumer_protocol.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from barnabas.coordination.consumer_protocol import ConsumerProtocolSubscription, read_version
from barnabas.coordination.timers import TimerKey
from barnabas.wire.codec import decoder_for
from barnabas.wire.messages.groups import JoinGroupRequestProtocol
from barnabas.wire.primitives import DecodeError

_VERSION_BYTES = 2


@dataclass(slots=True)
class ClassicMember:
    """One member; static (KIP-345) if it has an instance id."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]
    """The protocols that the member speaks, the one that it likes best first, and what it tells others with each."""
    session_key: TimerKey
    """Made once, as each heartbeat needs it."""
    assignment: bytes = b""
    is_new: bool = False
    """Whether it has never got an answer to its join: it can not send heartbeats, as it does not know its name."""
    # Invariant: at most one of the two waits, as a join in CompletingRebalance is answered at once or ends the syncs.
    join_ticket: Any | None = None
    sync_ticket: Any | None = None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether the session can not end now: who waits for an answer can not be blamed for sending nothing."""
        if self.is_new:
            # But it may have gone and joined anew under another name, and nobody would ever know.
            return False
        return self.join_ticket is not None or self.sync_ticket is not None

    def matches(self, protocols: dict[str, bytes]) -> bool:
        """Whether the member said the same last time, in the same order."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the candidate that the member likes best; there is one, see ClassicGroup.supports."""
        return next(name for name in self.protocols if name in candidates)


def session_key(group_id: str, member_id: str) -> TimerKey:
    """Return the key of the timer that ends a member's session."""
    return TimerKey("session", group_id, member_id)


def protocols_of(protocols: Iterable[JoinGroupRequestProtocol]) -> dict[str, bytes]:
    """Return the protocols of a request by name; of two with one name the first counts."""
    found: dict[str, bytes] = {}
    for protocol in protocols:
        found.setdefault(protocol.name, protocol.metadata)
    return found


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """Return the topics that a consumer reads, or None if these bytes are not a consumer's subscription."""
    try:
        read_version(metadata)
        # All later versions begin like the first, so what they add can not be in the way.
        subscription, _ = decoder_for(ConsumerProtocolSubscription, 0, False)(metadata, _VERSION_BYTES)
    except DecodeError:
        return None
    assert isinstance(subscription, ConsumerProtocolSubscription)
    return set(subscription.topics)
