from collections.abc import Callable
from typing import Any

COMPILED: bool
FRAMES_MAX: int
FRAMES_A_TRANSACTION: int
ANSWERS_BYTES: int

class PlainTarget:
    partition: Any

    def __init__(self, partition: object, answer: bytes, base_offset: int, has_start: bool) -> None: ...

class PlainProduce:
    def __init__(
        self,
        learn: Callable[[int, bytes, int], PlainTarget | None],
        admit: Callable[[bytes, memoryview, Any, int], object],
        on_change: Callable[[Any], object],
        delayed_fetch: object,
        delayed_produce: object,
    ) -> None: ...
    def forget(self) -> None: ...
    def take(
        self, view: memoryview, start: int, filled: int, frame_bytes_max: int, now_ms: int
    ) -> tuple[int, int, bytes]: ...

def read_produce(
    frame: bytes | bytearray | memoryview,
) -> tuple[int, int, int, int, bytes, int, int, int, bytes] | None: ...
