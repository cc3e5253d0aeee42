"""Members: what they vote for, when their session can end, and what their subscriptions say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.classic_member import ClassicMember, protocols_of, session_key, subscribed_topics
from barnabas.wire.messages.groups import JoinGroupRequestProtocol
from tests.coordination.group_world import subscription


def member(**changes: Any) -> ClassicMember:
    fields: dict[str, Any] = {
        "member_id": "a-1",
        "instance_id": None,
        "client_id": "a",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocols": {"range": b"1", "roundrobin": b"2"},
        "session_key": session_key("g", "a-1"),
    }
    return ClassicMember(**fields | changes)


def test_a_member_votes_for_what_it_named_first() -> None:
    assert member().vote({"roundrobin", "range"}) == "range"
    assert member().vote({"roundrobin", "sticky"}) == "roundrobin"


def test_protocols_match_in_names_bytes_and_order() -> None:
    assert member().matches({"range": b"1", "roundrobin": b"2"})
    assert not member().matches({"roundrobin": b"2", "range": b"1"})
    assert not member().matches({"range": b"1", "roundrobin": b"3"})
    assert not member().matches({"range": b"1"})


def test_who_waits_for_an_answer_needs_no_heartbeat_unless_new() -> None:
    assert not member().has_satisfied_heartbeat
    assert member(join_ticket=1).has_satisfied_heartbeat
    assert member(sync_ticket=1).has_satisfied_heartbeat
    assert not member(join_ticket=1, is_new=True).has_satisfied_heartbeat


def test_of_two_protocols_of_one_name_the_first_counts() -> None:
    twice = [JoinGroupRequestProtocol(name="range", metadata=data) for data in (b"1", b"2")]
    assert protocols_of(twice) == {"range": b"1"}


def test_a_subscription_names_topics_in_every_version() -> None:
    assert subscribed_topics(subscription("news", "sports")) == {"news", "sports"}
    assert subscribed_topics(subscription()) == set()
    later = b"\x00\x09" + subscription("news")[2:] + b"what a later version adds"
    assert subscribed_topics(later) == {"news"}


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff\xff" + subscription("news")[2:], subscription("news")[:-9]])
def test_garbage_is_no_subscription(garbage: bytes) -> None:
    assert subscribed_topics(garbage) is None


@given(st.binary(max_size=40))
def test_no_bytes_are_too_strange(data: bytes) -> None:
    topics = subscribed_topics(data)
    assert topics is None or all(isinstance(topic, str) for topic in topics)
