from typing import TypeAlias

_Buffer: TypeAlias = bytes | bytearray | memoryview
_Seeds: TypeAlias = tuple[int, int]

COMPILED: bool
SLOT_WORDS: int
SLOT_BYTES: int

def put_keys(
    table: memoryview,
    seeds: _Seeds,
    known: int,
    limit: int,
    hashes: memoryview,
    records: _Buffer,
    count: int,
    base_offset: int,
    start_offset: int,
) -> tuple[int, int, int]: ...
def filter_records(
    table: memoryview,
    seeds: _Seeds,
    hashes: memoryview,
    records: _Buffer,
    count: int,
    base_offset: int,
    end_offset: int,
    drop_tombstones: bool,
    out: bytearray | memoryview,
) -> tuple[int, int, int, int, int, int]: ...
def shift_timestamps(records: _Buffer, count: int, shift: int, out: bytearray | memoryview) -> tuple[int, int]: ...
def put_key(table: memoryview, seeds: _Seeds, known: int, limit: int, key: _Buffer, offset: int) -> int: ...
def find_key(table: memoryview, seeds: _Seeds, key: _Buffer) -> int: ...
