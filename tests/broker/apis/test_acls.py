"""Without an authorizer every question about ACLs is answered SECURITY_DISABLED."""

import pytest

from barnabas.client.connection import Connection
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_security_is_disabled(connection: Connection, version: int) -> None:
    described = connection.request(DescribeAclsRequest(), version)
    assert described.error_code == ErrorCode.SECURITY_DISABLED
    assert "no authorizer" in described.error_message
    created = connection.request(CreateAclsRequest(creations=[AclCreation(), AclCreation()]), version).results
    assert [one.error_code for one in created] == [ErrorCode.SECURITY_DISABLED] * 2
    (deleted,) = connection.request(DeleteAclsRequest(filters=[DeleteAclsFilter()]), version).filter_results
    assert (deleted.error_code, deleted.matching_acls) == (ErrorCode.SECURITY_DISABLED, [])
