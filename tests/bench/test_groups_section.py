"""The loads of the section `groups`, small, against a broker; and what they do when it does not answer as it must."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.wire.messages.coordinators import FindCoordinatorRequest
from bench.control import Control
from bench.groups.committing import CommitLoad
from bench.groups.frames import GROUP, find_coordinator, frame_of, open_connection, take_frames
from bench.groups.settling import Settling
from bench.groups.transacting import Kind, Producing
from bench.load.spec import LoadError
from bench.peers import Peer, start_barnabas
from bench.sections.groups import SETTINGS

TOPIC = "bench"


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    folder: Path = tmp_path_factory.mktemp("bench") / "peer"
    peer = start_barnabas(folder, SETTINGS)
    try:
        control = Control(peer.port)
        control.create_topic(TOPIC, 3)
        control.close()
        with open_connection(peer.port) as connection:
            find_coordinator(connection, "group", GROUP)
        yield peer
    finally:
        peer.close()


def test_frames_are_cut_off_as_they_come() -> None:
    frames = [frame_of(FindCoordinatorRequest(key="g" * size), 3) for size in (1, 20)]
    received = bytearray(frames[0] + frames[1][:10])
    assert take_frames(received) == [frames[0][4:]]
    assert received == frames[1][:10]
    received += frames[1][10:]
    assert take_frames(received) == [frames[1][4:]]
    assert not received


def test_members_settle_and_leave(peer: Peer) -> None:
    settling = Settling(peer.port, ["first", "second"], 5)
    seconds = settling.run()
    assert 0 < seconds < 20
    assert all(member.synced_generation == member.generation for member in settling.members)
    assert settling.requests >= 10 * 4
    settling.close()
    # Nobody is left behind who would have to be waited for.
    again = Settling(peer.port, ["first", "second"], 5)
    assert again.run() < 20
    again.close()


def test_commits_are_answered_and_kept(peer: Peer) -> None:
    load = CommitLoad(peer.port, TOPIC, ["one", "two"], 3)
    assert load.run(100) > 0
    load.check()
    assert load.run(7) > 0
    load.check()
    load.close()


def test_a_commit_that_is_refused_ends_the_load(peer: Peer) -> None:
    load = CommitLoad(peer.port, "no such topic", ["three"], 1)
    with pytest.raises(LoadError, match="a commit is answered"):
        load.run(10)
    load.close()


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
def test_records_are_produced_with_and_without_transactions(peer: Peer, kind: Kind) -> None:
    topic = f"produced-{kind.name}"
    control = Control(peer.port)
    control.create_topic(topic, 3)
    producer = Producing(peer.port, topic, 3, kind, batch_bytes=1000)
    producer.run_one_each(2)
    assert producer.stream(20, 5, 7) > 0
    markers = 0 if kind is Kind.PLAIN else 2 + 3
    assert producer.transactions == markers
    assert control.end_offsets(topic, 3) == [sent + markers for sent in producer.sent]
    assert sum(producer.sent) == (2 * 3 + 20) * 9
    producer.close()
    control.close()
