"""ListGroups v0-5, DescribeGroups v0-6, ConsumerGroupDescribe v0-1, DeleteGroups v0-2: groups as operators see them.

Behaviour: every group that is asked for is answered, be it with an error: librdkafka ends its process when one is
missing. ListGroups tells of the groups that this broker coordinates, and is refused while a part of them is loading.

Versions: List 4+ by state (KIP-518), 5+ by type (KIP-848); Describe 6+ GROUP_ID_NOT_FOUND instead of a dead group.
"""

from typing import Any

from barnabas.broker.apis.gathering import Gathering
from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.coordination.step import Reply, Step
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.group_admin import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)


def handle_list_groups(broker: Services, request: Request, body: ListGroupsRequest) -> ListGroupsResponse:
    """Tell which groups there are."""
    shards = broker.groups.shards
    if shards.is_loading:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the groups are being read")
    answer = ListGroupsResponse()
    for shard in shards.loaded:
        answer.groups += shard.machine.list_groups(body.states_filter, body.types_filter)
    return answer


def handle_describe_groups(broker: Services, request: Request, body: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Tell of the members of classic groups."""
    answer = DescribeGroupsResponse()
    for group_id in body.groups:
        try:
            machine = broker.groups.shards.shard_of(group_id).machine
            answer.groups.append(machine.describe_group(group_id, request.version))
        except ApiError as error:
            request.count_error(error.code)
            answer.groups.append(
                DescribedGroup(group_id=group_id, error_code=int(error.code), error_message=error.message)
            )
    return answer


def handle_consumer_group_describe(
    broker: Services, request: Request, body: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Tell of the members of consumer groups, and of what they have and are to have."""
    answer = ConsumerGroupDescribeResponse()
    for group_id in body.group_ids:
        try:
            machine = broker.groups.shards.shard_of(group_id).machine
            answer.groups.append(machine.describe_consumer_group(group_id))
        except ApiError as error:
            request.count_error(error.code)
            answer.groups.append(
                DescribedConsumerGroup(group_id=group_id, error_code=int(error.code), error_message=error.message)
            )
    return answer


class _ResultTicket:
    """The place of one group in the answer."""

    def __init__(self, result: DeletableGroupResult, done: Any) -> None:
        self._result = result
        self._done = done

    def answer(self, code: ErrorCode) -> None:
        """Say what came of it."""
        self._result.error_code = int(code)
        self._done(None)

    def refuse(self, error: ApiError) -> None:
        """Say why nothing came of it."""
        self.answer(error.code)


def handle_delete_groups(broker: Services, request: Request, body: DeleteGroupsRequest) -> Any:
    """Delete groups without members, with their offsets."""
    answer = DeleteGroupsResponse()
    gathering = Gathering(request, answer)
    shards = broker.groups.shards
    for group_id in body.groups_names:
        result = DeletableGroupResult(group_id=group_id)
        answer.results.append(result)
        ticket = _ResultTicket(result, gathering.expect(lambda _: None))
        try:
            shard = shards.shard_of(group_id)
        except ApiError as error:
            ticket.refuse(error)
            continue
        code, step = shard.machine.delete_group(group_id, shards.now_ms())
        done = Step(records=step.records, replies=[*step.replies, Reply(ticket, code)])
        shards.carry_out(shard, done)
    return gathering.outcome()
