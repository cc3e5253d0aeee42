from collections.abc import Sequence
from typing import TypeAlias

_Buffer: TypeAlias = bytes | bytearray | memoryview
_Header: TypeAlias = tuple[bytes, bytes | None]
_Record: TypeAlias = tuple[int, int, bytes | None, bytes | None, Sequence[_Header]]

COMPILED: bool
FAULTS: tuple[str, ...]

def check_records(
    records: _Buffer, count: int, dense: bool, last_offset_delta: int
) -> tuple[int, int, int, int, int]: ...
def decode_records(
    records: _Buffer, count: int
) -> list[tuple[int, int, bytes | None, bytes | None, tuple[_Header, ...]]]: ...
def encode_records(records: Sequence[_Record]) -> bytearray: ...
def read_plain_batch(
    data: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> tuple[tuple[int, ...], int, int, int] | None: ...
def build_own_batch(
    records: Sequence[tuple[bytes, bytes | None]],
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
) -> bytearray: ...
