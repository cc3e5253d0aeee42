"""THE table: which handler serves which API. What is not in it is not spoken.

A handler is named by its module in broker/apis/ and its function, and imported when its API is first asked for: a dozen
modules of messages would double the time that a broker takes to start. The versions stand in wire/apis.py; ApiVersions
tells clients of exactly the APIs that are listed here.
"""

from importlib import import_module

from barnabas.broker.request_channel import Handler, Route
from barnabas.wire.apis import ADOPT_SEGMENTS_KEY, APIS, DESCRIBE_BROKER_STATUS_KEY, DESCRIBE_SEGMENTS_KEY

PRODUCE_KEY = 0
FETCH_KEY = 1
JOIN_GROUP_KEY = 11
SYNC_GROUP_KEY = 14

HANDLERS: dict[int, str] = {
    PRODUCE_KEY: "produce.handle_produce",
    FETCH_KEY: "fetch.handle_fetch",
    2: "list_offsets.handle_list_offsets",
    3: "metadata.handle_metadata",
    8: "offsets.handle_offset_commit",
    9: "offsets.handle_offset_fetch",
    10: "coordinators.handle_find_coordinator",
    JOIN_GROUP_KEY: "groups.handle_join_group",
    12: "groups.handle_heartbeat",
    13: "groups.handle_leave_group",
    SYNC_GROUP_KEY: "groups.handle_sync_group",
    15: "group_admin.handle_describe_groups",
    16: "group_admin.handle_list_groups",
    17: "sasl.handle_sasl_handshake",
    18: "api_versions.handle_api_versions",
    19: "topics.handle_create_topics",
    20: "topics.handle_delete_topics",
    21: "topics.handle_delete_records",
    22: "producers.handle_init_producer_id",
    23: "list_offsets.handle_offset_for_leader_epoch",
    24: "transactions.handle_add_partitions_to_txn",
    25: "transactions.handle_add_offsets_to_txn",
    26: "transactions.handle_end_txn",
    27: "transactions.handle_write_txn_markers",
    28: "offsets.handle_txn_offset_commit",
    29: "acls.handle_acls",
    30: "acls.handle_acls",
    31: "acls.handle_acls",
    32: "configs.handle_describe_configs",
    33: "configs.handle_alter_configs",
    34: "log_dirs.handle_alter_replica_log_dirs",
    35: "log_dirs.handle_describe_log_dirs",
    36: "sasl.handle_sasl_authenticate",
    37: "topics.handle_create_partitions",
    42: "group_admin.handle_delete_groups",
    44: "configs.handle_incremental_alter_configs",
    47: "offsets.handle_offset_delete",
    60: "metadata.handle_describe_cluster",
    61: "producers.handle_describe_producers",
    65: "transaction_admin.handle_describe_transactions",
    66: "transaction_admin.handle_list_transactions",
    68: "groups.handle_consumer_group_heartbeat",
    69: "group_admin.handle_consumer_group_describe",
    74: "configs.handle_list_config_resources",
    75: "metadata.handle_describe_topic_partitions",
    ADOPT_SEGMENTS_KEY: "adopt_segments.handle_adopt_segments",
    DESCRIBE_SEGMENTS_KEY: "describe_segments.handle_describe_segments",
    DESCRIBE_BROKER_STATUS_KEY: "broker_status.handle_describe_broker_status",
}

PIPELINED = frozenset({PRODUCE_KEY})
"""Several produce requests of a connection may wait for the disk or for replicas together."""

UNCOUNTED = frozenset({FETCH_KEY, JOIN_GROUP_KEY, SYNC_GROUP_KEY})
"""A fetch waits as long as its client likes, a member of a group for the others: neither must take the place of
requests that have something to do."""


def handler_of(api_key: int) -> Handler:
    """Return the function that serves an API."""
    module, _, function = HANDLERS[api_key].partition(".")
    handler: Handler = getattr(import_module(f"barnabas.broker.apis.{module}"), function)
    return handler


def routes() -> dict[int, Route]:
    """Return the table by API key."""
    return {
        key: Route(APIS[key], handler_of, is_pipelined=key in PIPELINED, is_counted=key not in UNCOUNTED)
        for key in HANDLERS
    }
