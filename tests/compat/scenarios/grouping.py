"""Consumer groups: members that come, go and crash, committed offsets, and where a group begins.

The same is asked with the classic protocol and with the consumer protocol (KIP-848).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tests.compat.model import (
    ClientError,
    CommittedOffset,
    Driver,
    Member,
    MemberOptions,
    Need,
    ProducerOptions,
    Record,
)
from tests.compat.scenarios.crew import Crew, new_crew
from tests.compat.scenarios.scenario import (
    Context,
    Scenario,
    eventually,
    numbered,
    numbers_of,
    refused,
    scenario,
)

PARTITIONS = 4
# Rounds of records that a group gets before something happens to it.
ROUNDS = 5

CLASSIC = MemberOptions(group="", topic="")
COOPERATIVE = replace(CLASSIC, assignor="cooperative-sticky")
CONSUMER = replace(CLASSIC, protocol="consumer")

Body = Callable[[Context, MemberOptions], None]


def both(sentence: str, *needs: Need, restarts: bool = False) -> Callable[[Body], list[Scenario]]:
    """Makes two scenarios of a function: one with each protocol."""

    def made(run: Body) -> list[Scenario]:
        name = run.__name__.replace("_", " ")

        def variant(words: str, options: MemberOptions, *all_needs: Need) -> Scenario:
            return scenario(sentence, *all_needs, restarts=restarts, name=f"{name}{words}")(
                lambda context: run(context, options)
            )

        return [
            variant("", CLASSIC, *needs),
            variant(" (consumer protocol)", CONSUMER, *needs, Need.CONSUMER_PROTOCOL),
        ]

    return made


def take(member: Member, count: int, *, commit: bool = False) -> list[Record]:
    """Polls until this many records came."""
    records: list[Record] = []

    def enough() -> bool:
        records.extend(member.poll(commit=commit).records)
        return len(records) >= count

    eventually(enough, f"{count} records come")
    return records


@both("A group is left and joined again, and goes on with the first record that was not committed.")
def commit_and_resume(context: Context, options: MemberOptions) -> None:
    with new_crew(context, 2, options) as crew:
        crew.feed(ROUNDS)
        crew.join()
        crew.wait_for_all()
        for worker in crew.workers:
            worker.stop()
        crew.feed(ROUNDS)
        second = crew.join()
        crew.finish_exactly_once()
        assert len(second.records) == 2 * ROUNDS


def joins_and_leaves(crew: Crew) -> None:
    with crew.feeding():
        first = crew.join()
        crew.settle(first)
        second = crew.join()
        crew.settle(first, second)
        third = crew.join()
        crew.settle(first, second, third)
        first.stop()
        crew.settle(second, third)
        third.stop()
        crew.settle(second)
    crew.finish_exactly_once()


@both("Members join and leave while records come: every partition has one owner, every record is consumed once.")
def members_join_and_leave(context: Context, options: MemberOptions) -> None:
    with new_crew(context, PARTITIONS, options) as crew:
        joins_and_leaves(crew)


@scenario(
    "The same with incremental rebalances (cooperative-sticky), where members keep what stays theirs.",
    Need.COOPERATIVE,
)
def cooperative_rebalances(context: Context) -> None:
    with new_crew(context, PARTITIONS, COOPERATIVE) as crew:
        joins_and_leaves(crew)


@both("A member is killed: after its session the others get its partitions, and no record is lost.")
def a_member_crashes(context: Context, options: MemberOptions) -> None:
    options = replace(options, session_timeout_ms=3_000)
    with new_crew(context, PARTITIONS, options) as crew, context.apart() as apart:
        with crew.feeding():
            first = crew.join()
            second = crew.join(where=apart)
            crew.settle(first, second)
            second.crash(apart)
            crew.settle(first)
        crew.finish_exactly_once()


@both("A static member restarts within its session and has its partitions again; the others notice nothing.")
def a_static_member_restarts(context: Context, options: MemberOptions) -> None:
    with new_crew(context, PARTITIONS, options) as crew:
        with crew.feeding():
            first = crew.join("first")
            crew.settle(first)
            second = crew.join("second")
            crew.settle(first, second)
            rebalances, owned = first.rebalances, second.owned
            second.stop()
            again = crew.join("second")
            crew.settle(first, again)
            assert again.owned == owned
            assert first.rebalances == rebalances
        crew.finish_exactly_once()


@both("A group without offsets begins with the first record (auto.offset.reset=earliest).")
def a_group_begins_at_the_earliest(context: Context, options: MemberOptions) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(5))
    with context.driver.member(replace(options, group=topic, topic=topic, reset="earliest")) as member:
        assert numbers_of(take(member, 5)) == list(range(5))


@both("A group without offsets begins with what comes next (auto.offset.reset=latest).")
def a_group_begins_at_the_latest(context: Context, options: MemberOptions) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(3))
    with (
        context.driver.member(replace(options, group=topic, topic=topic, reset="latest")) as member,
        context.driver.producer(ProducerOptions()) as producer,
        ThreadPoolExecutor(1) as pool,
    ):
        taking = pool.submit(take, member, 1)
        sent = 3
        # When the member has joined and reset cannot be seen from outside, so records are sent until it gets one.
        while not taking.done():
            producer.send(topic, numbered(1, start=sent))
            sent += 1
        first, *_ = numbers_of(taking.result())
    assert 3 <= first < sent


@both("Offsets are committed with a text, found by admin clients, and taken up by the next member.")
def committed_offsets_and_metadata(context: Context, options: MemberOptions) -> None:
    topic = context.new_topic(2)
    context.send(topic, [*numbered(5), *numbered(5, start=5, partition=1)])
    options = replace(options, group=f"{topic}-group", topic=topic)
    committed = {0: CommittedOffset(offset=3, metadata="größe"), 1: CommittedOffset(offset=0)}
    with context.driver.member(options) as member:
        take(member, 10)
        member.commit(committed)
        member.commit({0: CommittedOffset(offset=4, metadata="again")})
    assert context.driver.committed(options.group, topic) == {
        **committed,
        0: CommittedOffset(offset=4, metadata="again"),
    }
    with context.driver.member(options) as member:
        assert sorted(numbers_of(take(member, 6))) == [4, 5, 6, 7, 8, 9]


@both(
    "A group is listed and described with its members, cannot be deleted while it has some, and then is gone.",
    Need.DELETE_GROUPS,
)
def list_describe_and_delete_groups(context: Context, options: MemberOptions) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(3))
    group = f"{topic}-group"
    driver = context.driver
    with context.driver.member(replace(options, group=group, topic=topic)) as member:
        take(member, 3, commit=True)
        assert group in driver.list_groups()
        described = driver.describe_group(group)
        assert (described.state, described.members) == ("STABLE", 1)
        with refused("NON_EMPTY_GROUP"):
            driver.delete_group(group)
    eventually(lambda: driver.describe_group(group).state == "EMPTY", "the group is empty")
    driver.delete_group(group)
    assert group not in driver.list_groups()


@scenario(
    "Partitions are added to a topic: the broker gives them to the members of its groups.", Need.CONSUMER_PROTOCOL
)
def new_partitions_reach_a_group(context: Context) -> None:
    with new_crew(context, 2, CONSUMER) as crew:
        first, second = crew.join(), crew.join()
        crew.settle(first, second)
        crew.add_partitions(PARTITIONS)
        crew.settle(first, second)
        crew.feed(ROUNDS)
        crew.finish_exactly_once()


@both("A group rides out a restart of the broker: its members go on where they were.", restarts=True)
def a_group_over_a_restart(context: Context, options: MemberOptions) -> None:
    with new_crew(context, 2, options) as crew:
        first, second = crew.join(), crew.join()
        crew.settle(first, second)
        crew.feed(ROUNDS)
        # No commit is under way when the broker goes: what is done about one that fails is the application's affair.
        crew.wait_for_all()
        context.broker.stop()
        context.broker.start()
        crew.feed(ROUNDS)
        crew.finish_exactly_once()


def is_loaded(driver: Driver, group: str, topic: str) -> bool:
    """Whether the coordinator answers yet. Some admin clients do not ask again by themselves."""
    try:
        driver.committed(group, topic)
    except ClientError as error:
        if error.name not in ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"):
            raise
        return False
    return True


@both("Committed offsets are still there after a SIGKILL of the broker.", restarts=True)
def committed_offsets_over_a_kill(context: Context, options: MemberOptions) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(10))
    options = replace(options, group=f"{topic}-group", topic=topic)
    with context.driver.member(options) as member:
        take(member, 10)
        member.commit({0: CommittedOffset(offset=7, metadata="seven")})
    context.broker.kill()
    context.broker.start()
    driver = context.reconnected()
    eventually(lambda: is_loaded(driver, options.group, topic), "the coordinator has read its log")
    assert driver.committed(options.group, topic) == {0: CommittedOffset(offset=7, metadata="seven")}
    with driver.member(options) as member:
        assert numbers_of(take(member, 3)) == [7, 8, 9]


SCENARIOS = [
    *commit_and_resume,
    *members_join_and_leave,
    cooperative_rebalances,
    *a_member_crashes,
    *a_static_member_restarts,
    *a_group_begins_at_the_earliest,
    *a_group_begins_at_the_latest,
    *committed_offsets_and_metadata,
    *list_describe_and_delete_groups,
    new_partitions_reach_a_group,
    *a_group_over_a_restart,
    *committed_offsets_over_a_kill,
]
