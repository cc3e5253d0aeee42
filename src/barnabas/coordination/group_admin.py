"""Groups as an operator sees them: ListGroups and DescribeGroups; ConsumerGroupDescribe of what is no consumer group.

Rule 1: what members told each other is shown only of a Stable group, as only there it belongs together.
"""

from collections.abc import Collection, Iterable

from barnabas.coordination.classic_group import ClassicGroup, ClassicState
from barnabas.coordination.group import Group
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.group_admin import (
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedGroupMember,
    ListedGroup,
)

DESCRIBE_VERSION_OF_UNKNOWN_GROUP = 6
DEAD = "Dead"
"""The state of a group that is not there."""


def list_groups(
    groups: Iterable[Group], states_filter: Collection[str], types_filter: Collection[str]
) -> list[ListedGroup]:
    """Return the groups that are in one of some states and of one of some types; no filter lets all through."""
    states = {state.strip().lower() for state in states_filter}
    types = {kind.strip().lower() for kind in types_filter}
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state_name,
            group_type=group.group_type,
        )
        for group in groups
        if (not states or group.state_name.lower() in states) and (not types or group.group_type in types)
    ]


def describe_group(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    """Describe a classic group."""
    if not isinstance(group, ClassicGroup):
        described = DescribedGroup(group_id=group_id, group_state=DEAD)
        if version >= DESCRIBE_VERSION_OF_UNKNOWN_GROUP:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = _why_not(group_id, group, "classic")
        return described
    is_stable = group.state is ClassicState.STABLE
    protocol = group.protocol_name or ""
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.protocols.get(protocol, b"") if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def no_consumer_group(group_id: str, group: Group | None) -> DescribedConsumerGroup:
    """Return the description of a group that is not there, or not a consumer group."""
    if not group_id:
        return DescribedConsumerGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    return DescribedConsumerGroup(
        group_id=group_id,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=_why_not(group_id, group, "consumer"),
    )


def _why_not(group_id: str, group: Group | None, kind: str) -> str:
    return f"Group {group_id} not found." if group is None else f"Group {group_id} is not a {kind} group."
