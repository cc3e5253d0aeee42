from barnabas.model import LogOffsetMetadata
from barnabas.records.builder import OwnBatch
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.segment import ActiveSegment

COMPILED: bool
DISTANCE_MAX: int
AHEAD_BYTES_MIN: int

class SegmentEnd:
    base_offset: int
    size: int
    largest_timestamp: int
    largest_offset: int
    bytes_since_entry: int
    is_index_full: bool
    room_end: int

    def __init__(self, base_offset: int) -> None: ...

class LogEnd:
    end_offset: int
    log_start_offset: int
    is_closed: bool
    is_touched: bool
    producers: ProducerStateManager
    leader_epochs: LeaderEpochs
    active: ActiveSegment
    active_end: SegmentEnd
    takes_plain: bool
    refuses_keyless: bool
    batch_bytes_max: int
    segment_bytes: int
    interval_bytes: int
    offset_max: int
    roll_after: int
    before_max_ms: int
    after_max_ms: int

    @property
    def log_end(self) -> LogOffsetMetadata: ...
    @property
    def high_watermark(self) -> LogOffsetMetadata: ...
    @high_watermark.setter
    def high_watermark(self, place: LogOffsetMetadata) -> None: ...
    @property
    def high_watermark_offset(self) -> int: ...
    def watermark_to_end(self) -> None: ...
    def append_own_plain(self, own: OwnBatch, leader_epoch: int) -> int: ...
    def append_plain(
        self, data: memoryview, start: int, end: int, leader_epoch: int, now_ms: int, is_admitted: bool = False
    ) -> int: ...
