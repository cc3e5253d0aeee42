"""The settings of the coordinators, of groups and of transactions. Names and defaults are Kafka's."""

from dataclasses import dataclass

from barnabas.config import DAY_MS, INT_MAX, boolean, one_of, setting, some_of, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What the group coordinator reads."""

    min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        6_000,
        whole_number(0, INT_MAX),
        "The shortest session that a member may ask for.",
    )
    max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        1_800_000,
        whole_number(0, INT_MAX),
        "The longest session that a member may ask for.",
    )
    initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        3_000,
        whole_number(0, INT_MAX),
        "How long an empty classic group waits for more members before its first rebalance.",
    )
    max_size: int = setting(
        "group.max.size", INT_MAX, whole_number(1, INT_MAX), "How many members a classic group may have."
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", 4096, whole_number(0, INT_MAX), "The longest text that comes with an offset."
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        10_080,
        whole_number(1, INT_MAX),
        "How long the offsets of a group are kept after it became empty, or of a lone consumer after its commit.",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        600_000,
        whole_number(1),
        "How often it is looked for offsets that are kept no longer.",
    )
    consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        45_000,
        whole_number(1, INT_MAX),
        "After how long without a heartbeat a member of a consumer group is gone.",
    )
    consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        whole_number(1, INT_MAX),
        "How often the members of a consumer group are asked to send heartbeats.",
    )
    consumer_max_size: int = setting(
        "group.consumer.max.size", INT_MAX, whole_number(1, INT_MAX), "How many members a consumer group may have."
    )
    consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        ("uniform", "range"),
        some_of("uniform", "range"),
        "The assignors of consumer groups; the first is taken when the members ask for none.",
    )
    consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        "bidirectional",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
        "Whether running groups may change between the classic and the consumer protocol.",
    )
    consumer_regex_refresh_interval_ms: int = setting(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        whole_number(10_000, INT_MAX),
        "How often regular expressions are compared with the topics again, besides when topics come and go.",
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,
        whole_number(1, INT_MAX),
        "How many partitions __consumer_offsets gets when it is created.",
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        3,
        whole_number(1, 32767),
        "How many replicas __consumer_offsets gets, or as many as there are brokers.",
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", 100 << 20, whole_number(1, INT_MAX), "How large its segments become."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """What the transaction coordinator reads."""

    max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        900_000,
        whole_number(1, INT_MAX),
        "The longest transaction that a producer may ask for.",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        7 * DAY_MS,
        whole_number(1, INT_MAX),
        "How long a transactional id is remembered that is not used.",
    )
    abort_timed_out_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        whole_number(1, INT_MAX),
        "How often it is looked for transactions that took too long.",
    )
    remove_expired_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        whole_number(1, INT_MAX),
        "How often it is looked for transactional ids that are remembered no longer.",
    )
    partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        True,
        boolean(),
        "Whether a transactional produce is refused unless its partition was added to the transaction before.",
    )
    topic_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        50,
        whole_number(1, INT_MAX),
        "How many partitions __transaction_state gets when it is created.",
    )
    topic_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        3,
        whole_number(1, 32767),
        "How many replicas __transaction_state gets, or as many as there are brokers.",
    )
    topic_min_isr: int = setting(
        "transaction.state.log.min.isr",
        2,
        whole_number(1, INT_MAX),
        "How many replicas of it must have a record, or as many as there are.",
    )
    topic_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes", 100 << 20, whole_number(1, INT_MAX), "How large its segments become."
    )
