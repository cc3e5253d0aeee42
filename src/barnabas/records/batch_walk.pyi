from array import array

COMPILED: bool
NEXT_OFFSET: int
BYTES_SINCE_ENTRY: int
LARGEST_TIMESTAMP: int
LARGEST_OFFSET: int
TIME_INDEX_TIMESTAMP: int
ROOM: int
LEADER_EPOCH: int
OFFSET_INDEX_OFFSET: int
TIME_INDEX_OFFSET: int
OFFSET_ENTRIES: int
TIME_ENTRIES: int
NOTABLE: int
STATE_SIZE: int

def walk_batches(
    chunk: bytes | bytearray | memoryview,
    limits: array[int],
    state: array[int],
    offset_entries: bytearray,
    time_entries: bytearray,
    notable: array[int],
) -> int: ...
def find_batch(buffer: bytes | bytearray | memoryview, target_offset: int) -> tuple[int, int]: ...
