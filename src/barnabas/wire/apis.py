"""The APIs of the protocol: key, versions, from which version on they are flexible, and where their messages are.

A flexible version has compact lengths and tagged fields, in its header too. A module of messages is imported when the
first of its APIs is used, because making a hundred dataclasses takes longer than starting a broker should.

Rule 1: versions are those of Kafka 4.3, and the older ones that clients in use still send.
Rule 2: an API of our own has a key that Kafka will not come to. Clients pass over keys in ApiVersions that they do not
know, and ours finds out there whether it speaks to one of us.
"""

from functools import cache
from importlib import import_module
from typing import NamedTuple

from barnabas.wire.codec import Decoder, Encoder, decoder_for, encoder_for
from barnabas.wire.schema import VERSION_MAX, Versions

NEVER_FLEXIBLE = VERSION_MAX + 1


class Api(NamedTuple):
    """One row of the table."""

    key: int
    name: str
    module: str
    versions: Versions
    flexible_since: int

    def is_flexible(self, version: int) -> bool:
        """Tell whether a version has compact lengths and tagged fields."""
        return version >= self.flexible_since

    @property
    def request(self) -> type:
        """The structure of its requests."""
        return _message(self.module, self.name + "Request")

    @property
    def response(self) -> type:
        """The structure of its answers."""
        return _message(self.module, self.name + "Response")


@cache
def _message(module: str, name: str) -> type:
    found: type = getattr(import_module(f"barnabas.wire.messages.{module}"), name)
    return found


API_VERSIONS_KEY = 18
ADOPT_SEGMENTS_KEY = 16_962
DESCRIBE_SEGMENTS_KEY = 16_963
DESCRIBE_BROKER_STATUS_KEY = 16_964
PRIVATE_KEYS = frozenset({ADOPT_SEGMENTS_KEY, DESCRIBE_SEGMENTS_KEY, DESCRIBE_BROKER_STATUS_KEY})
"""What only Barnabas speaks."""

APIS = {
    api.key: api
    for api in (
        Api(0, "Produce", "produce", Versions(0, 13), 9),
        Api(1, "Fetch", "fetch", Versions(4, 18), 12),
        Api(2, "ListOffsets", "list_offsets", Versions(1, 11), 6),
        Api(3, "Metadata", "metadata", Versions(0, 13), 9),
        Api(8, "OffsetCommit", "offsets", Versions(2, 10), 8),
        Api(9, "OffsetFetch", "offsets", Versions(1, 10), 6),
        Api(10, "FindCoordinator", "coordinators", Versions(0, 6), 3),
        Api(11, "JoinGroup", "groups", Versions(0, 9), 6),
        Api(12, "Heartbeat", "groups", Versions(0, 4), 4),
        Api(13, "LeaveGroup", "groups", Versions(0, 5), 4),
        Api(14, "SyncGroup", "groups", Versions(0, 5), 4),
        Api(15, "DescribeGroups", "group_admin", Versions(0, 6), 5),
        Api(16, "ListGroups", "group_admin", Versions(0, 5), 3),
        Api(17, "SaslHandshake", "sasl", Versions(0, 1), NEVER_FLEXIBLE),
        Api(API_VERSIONS_KEY, "ApiVersions", "api_versions", Versions(0, 4), 3),
        Api(19, "CreateTopics", "topics", Versions(2, 7), 5),
        Api(20, "DeleteTopics", "topics", Versions(1, 6), 4),
        Api(21, "DeleteRecords", "topics", Versions(0, 2), 2),
        Api(22, "InitProducerId", "producers", Versions(0, 5), 2),
        Api(23, "OffsetForLeaderEpoch", "list_offsets", Versions(2, 4), 4),
        Api(24, "AddPartitionsToTxn", "transactions", Versions(0, 5), 3),
        Api(25, "AddOffsetsToTxn", "transactions", Versions(0, 4), 3),
        Api(26, "EndTxn", "transactions", Versions(0, 5), 3),
        Api(27, "WriteTxnMarkers", "transactions", Versions(1, 2), 1),
        Api(28, "TxnOffsetCommit", "transactions", Versions(0, 5), 3),
        Api(29, "DescribeAcls", "acls", Versions(1, 3), 2),
        Api(30, "CreateAcls", "acls", Versions(1, 3), 2),
        Api(31, "DeleteAcls", "acls", Versions(1, 3), 2),
        Api(32, "DescribeConfigs", "configs", Versions(1, 4), 4),
        Api(33, "AlterConfigs", "configs", Versions(0, 2), 2),
        Api(34, "AlterReplicaLogDirs", "log_dirs", Versions(1, 2), 2),
        Api(35, "DescribeLogDirs", "log_dirs", Versions(1, 5), 2),
        Api(36, "SaslAuthenticate", "sasl", Versions(0, 2), 2),
        Api(37, "CreatePartitions", "topics", Versions(0, 3), 2),
        Api(42, "DeleteGroups", "group_admin", Versions(0, 2), 2),
        Api(44, "IncrementalAlterConfigs", "configs", Versions(0, 1), 1),
        Api(47, "OffsetDelete", "offsets", Versions(0, 0), NEVER_FLEXIBLE),
        Api(60, "DescribeCluster", "metadata", Versions(0, 2), 0),
        Api(61, "DescribeProducers", "producers", Versions(0, 0), 0),
        Api(65, "DescribeTransactions", "transaction_admin", Versions(0, 0), 0),
        Api(66, "ListTransactions", "transaction_admin", Versions(0, 2), 0),
        Api(68, "ConsumerGroupHeartbeat", "consumer_groups", Versions(0, 1), 0),
        Api(69, "ConsumerGroupDescribe", "group_admin", Versions(0, 1), 0),
        Api(74, "ListConfigResources", "configs", Versions(0, 1), 0),
        Api(75, "DescribeTopicPartitions", "metadata", Versions(0, 0), 0),
        Api(ADOPT_SEGMENTS_KEY, "AdoptSegments", "adopt_segments", Versions(0, 0), 0),
        Api(DESCRIBE_SEGMENTS_KEY, "DescribeSegments", "describe_segments", Versions(0, 0), 0),
        Api(DESCRIBE_BROKER_STATUS_KEY, "DescribeBrokerStatus", "broker_status", Versions(0, 0), 0),
    )
}


def request_decoder(api: Api, version: int) -> Decoder:
    """Return what reads the body of a request."""
    return decoder_for(api.request, version, api.is_flexible(version))


def request_encoder(api: Api, version: int) -> Encoder:
    """Return what writes the body of a request."""
    return encoder_for(api.request, version, api.is_flexible(version))


def response_decoder(api: Api, version: int) -> Decoder:
    """Return what reads the body of an answer."""
    return decoder_for(api.response, version, api.is_flexible(version))


def response_encoder(api: Api, version: int) -> Encoder:
    """Return what writes the body of an answer."""
    return encoder_for(api.response, version, api.is_flexible(version))
