COMPILED: bool

def read_produce(
    frame: bytes | bytearray | memoryview,
) -> tuple[int, int, int, int, bytes, int, int, int, bytes] | None: ...
