"""ApiVersions: exactly the dispatch table, in every version."""

import pytest

from barnabas.broker.dispatch import HANDLERS
from barnabas.client.connection import Connection
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.api_versions import ApiVersionsRequest


@pytest.mark.parametrize("version", range(5))
def test_a_client_is_told_exactly_the_dispatch_table(connection: Connection, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    answer = connection.request(request, version)
    assert answer.error_code == ErrorCode.NONE
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [
        (key, *APIS[key].versions) for key in sorted(HANDLERS)
    ]


def test_telemetry_is_not_promised(connection: Connection) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    assert {71, 72}.isdisjoint(row.api_key for row in connection.request(request, 4).api_keys)


def test_transactions_of_version_2_and_consumer_groups_are_in_force(connection: Connection) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    answer = connection.request(request, 4)
    assert answer.finalized_features_epoch >= 0, "the Java client heeds features only with an epoch"
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    assert levels == {"group.version": 1, "transaction.version": 2}
    assert {one.name: (one.min_version, one.max_version) for one in answer.supported_features} == {
        "group.version": (0, 1),
        "transaction.version": (0, 2),
    }
    older = connection.request(request, 3)
    assert older.finalized_features == answer.finalized_features
    assert older.supported_features == [], "clients of version 3 fail on a feature that begins at 0"


def test_produce_is_told_from_version_0_on(connection: Connection) -> None:
    """librdkafka before 2.11.1 drops compression otherwise, without a word."""
    assert connection.request(ApiVersionsRequest(), 0).api_keys[0].min_version == 0


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("apache-kafka-java", ErrorCode.NONE),
        ("a", ErrorCode.NONE),
        ("a.b-c9", ErrorCode.NONE),
        ("", ErrorCode.INVALID_REQUEST),
        ("-a", ErrorCode.INVALID_REQUEST),
        ("a.", ErrorCode.INVALID_REQUEST),
        ("a b", ErrorCode.INVALID_REQUEST),
        ("a\n", ErrorCode.INVALID_REQUEST),
        ("änderung", ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", [3, 4])
def test_the_name_of_a_client_must_be_one_that_can_be_logged(
    connection: Connection, name: str, code: ErrorCode, version: int
) -> None:
    for fields in ((name, "1.0"), ("test", name)):
        request = ApiVersionsRequest(client_software_name=fields[0], client_software_version=fields[1])
        answer = connection.request(request, version)
        assert answer.error_code == code
        assert bool(answer.api_keys) == (code is ErrorCode.NONE)
    assert connection.request(ApiVersionsRequest(client_software_name=name), 2).error_code == ErrorCode.NONE
