"""Checks a file against the sums that Hadoop's local file system, and so Spark, writes beside it and reads it by.

.NAME.crc    magic   "crc" and 0
             size    i32     how many bytes of the file a sum is of: 512
             sums    i32     the CRC-32 of the first so many bytes, of the next, and so on to the end of the file
"""

import os
import struct
import zlib

_HEAD = struct.Struct(">4si")
_SUM = struct.Struct(">I")
_MAGIC = b"crc\0"


def is_sound(path: str, start: int, end: int) -> bool:
    """Tell whether the bytes from `start` to `end` are as they were written; those of a file without sums are.

    Raises:
        OSError: The file can not be read.
    """
    folder, name = os.path.split(path)
    try:
        with open(os.path.join(folder, f".{name}.crc"), "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return True
    if len(content) < _HEAD.size:
        return True  # Hadoop passes over what is no file of sums, too.
    magic, size = _HEAD.unpack_from(content)
    if magic != _MAGIC or size <= 0:
        return True
    first, last = start // size, -(-end // size)
    sums = content[_HEAD.size + first * _SUM.size : _HEAD.size + last * _SUM.size]
    with open(path, "rb") as file:
        file.seek(first * size)
        data = memoryview(file.read((last - first) * size))
    found = b"".join(_SUM.pack(zlib.crc32(data[at : at + size])) for at in range(0, len(data), size))
    return found == sums
