"""JoinGroup v0-9, SyncGroup v0-5, Heartbeat v0-4, LeaveGroup v0-5, ConsumerGroupHeartbeat v0-1: the members of groups.

Behaviour: the machine of the group answers (coordination/group_coordinator.py). A JoinGroup waits until the group is
complete, a SyncGroup until its leader has sent the assignment; both as long as the members' time-outs let them.

Versions: Join 4+ asks new members to come again with the id they get (KIP-394), 5+ static members (KIP-345), 9+ a
static leader need not assign again (KIP-814); Leave 3+ several members at a time; ConsumerGroupHeartbeat 1+ regular
expressions and member ids made by clients (KIP-848, KIP-1082).
"""

from typing import Any

from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.coordination.step import Client
from barnabas.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from barnabas.wire.messages.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest


def client_of(request: Request) -> Client:
    """Return who asks, as groups show their members."""
    return Client(request.client_id or "", "/" + request.peer.client_host)


def handle_join_group(broker: Services, request: Request, body: JoinGroupRequest) -> Any:
    """Let a member join, or come again for the next generation."""
    client = client_of(request)
    return broker.groups.ask(
        request,
        body,
        body.group_id,
        lambda machine, ticket, now_ms: machine.join_group(ticket, client, request.version, body, now_ms),
    )


def handle_sync_group(broker: Services, request: Request, body: SyncGroupRequest) -> Any:
    """Take the assignment from the leader, and give each member its own."""
    return broker.groups.ask(
        request,
        body,
        body.group_id,
        lambda machine, ticket, now_ms: machine.sync_group(ticket, body, now_ms, request.version),
    )


def handle_heartbeat(broker: Services, request: Request, body: HeartbeatRequest) -> Any:
    """Let a member live on, and tell it when the group changes."""
    return broker.groups.ask(
        request, body, body.group_id, lambda machine, ticket, now_ms: machine.heartbeat(ticket, body, now_ms)
    )


def handle_leave_group(broker: Services, request: Request, body: LeaveGroupRequest) -> Any:
    """Let members go."""
    return broker.groups.ask(
        request,
        body,
        body.group_id,
        lambda machine, ticket, now_ms: machine.leave_group(ticket, request.version, body, now_ms),
    )


def handle_consumer_group_heartbeat(broker: Services, request: Request, body: ConsumerGroupHeartbeatRequest) -> Any:
    """Let a member of a consumer group join, live on or leave."""
    client = client_of(request)
    return broker.groups.ask(
        request,
        body,
        body.group_id,
        lambda machine, ticket, now_ms: machine.consumer_group_heartbeat(ticket, client, request.version, body, now_ms),
    )
