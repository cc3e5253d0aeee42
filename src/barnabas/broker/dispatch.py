"""THE table: which handler serves which API. What is not in it is not spoken.

A handler is named by its module in broker/apis/ and its function, and imported when its API is first asked for: a dozen
modules of messages would double the time that a broker takes to start. The versions stand in wire/apis.py; ApiVersions
tells clients of exactly the APIs that are listed here.
"""

from importlib import import_module

from barnabas.broker.request_channel import Handler, Route
from barnabas.wire.apis import APIS

PRODUCE_KEY = 0
FETCH_KEY = 1

HANDLERS: dict[int, str] = {
    PRODUCE_KEY: "produce.handle_produce",
    FETCH_KEY: "fetch.handle_fetch",
    2: "list_offsets.handle_list_offsets",
    3: "metadata.handle_metadata",
    10: "coordinators.handle_find_coordinator",
    18: "api_versions.handle_api_versions",
    19: "topics.handle_create_topics",
    20: "topics.handle_delete_topics",
    21: "topics.handle_delete_records",
    22: "producers.handle_init_producer_id",
    23: "list_offsets.handle_offset_for_leader_epoch",
    29: "acls.handle_acls",
    30: "acls.handle_acls",
    31: "acls.handle_acls",
    32: "configs.handle_describe_configs",
    33: "configs.handle_alter_configs",
    34: "log_dirs.handle_alter_replica_log_dirs",
    35: "log_dirs.handle_describe_log_dirs",
    37: "topics.handle_create_partitions",
    44: "configs.handle_incremental_alter_configs",
    60: "metadata.handle_describe_cluster",
    61: "producers.handle_describe_producers",
    74: "configs.handle_list_config_resources",
    75: "metadata.handle_describe_topic_partitions",
}

PIPELINED = frozenset({PRODUCE_KEY})
"""Several produce requests of a connection may wait for the disk or for replicas together."""

UNCOUNTED = frozenset({FETCH_KEY})
"""A fetch waits as long as its client likes, and must not take the place of requests that have something to do."""


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
