"""The parts that messages are made of and that `struct` has no letter for: varints, tagged fields, and their errors."""


class DecodeError(Exception):
    """Bytes from outside are not the message they should be; the connection they came by is closed."""


def read_unsigned_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the number at `position`, seven bits a byte, lowest first, and the position behind it."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise DecodeError(f"the varint at byte {position} is longer than 32 bits")


def unsigned_varint(value: int) -> bytes:
    """Return a number as a varint."""
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def skip_tagged_fields(data: bytes | memoryview, position: int) -> int:
    """Return the position behind tagged fields of which none is known; later versions add some, which is no error."""
    count, position = read_unsigned_varint(data, position)
    for _ in range(count):
        _, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        position += size
        if position > len(data):
            raise DecodeError(f"a tagged field ends at byte {position}, but there are only {len(data)}")
    return position
