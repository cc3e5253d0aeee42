"""The codecs: both directions, foreign framings, and inputs that lie about what they hold."""

import gzip
import struct
import subprocess
import sys
import tracemalloc
import zlib
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records import codecs
from barnabas.records.codecs import (
    Codec,
    CodecError,
    DecompressionError,
    DecompressionLimitError,
    codec_by_name,
    compress,
    decompress,
)
from tests.records.message_sets import compress_for
from tests.records.strategies import Mutation, mutated, mutations

LIMIT = 1 << 20
COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"%d bottles of beer on the wall, " % number for number in range(5000))


def test_numbers_and_names_are_those_of_kafka() -> None:
    assert [codec.value for codec in Codec] == [0, 1, 2, 3, 4]
    names = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]
    assert [codec_by_name(name) for name in names] == list(Codec)
    assert codec_by_name("none") is Codec.NONE
    for name in ("producer", "GZIP", ""):
        with pytest.raises(ValueError, match=f"one of uncompressed, none, gzip, snappy, lz4, zstd, but '{name}'"):
            codec_by_name(name)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(100_000)], ids=["empty", "one", "text", "zeros"])
def test_bytes_come_back(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, data)
    assert isinstance(compressed, bytes)
    assert decompress(codec, compressed, len(data)) == data
    assert decompress(codec, memoryview(compressed), LIMIT) == data
    assert compress(codec, memoryview(bytearray(data))) == compressed


@pytest.mark.parametrize("codec", list(Codec))
def test_a_codec_may_be_given_by_its_number(codec: Codec) -> None:
    number: Any = int(codec)
    assert decompress(number, compress(number, TEXT), LIMIT) == TEXT
    assert compress(number, TEXT) == compress(codec, TEXT)


def test_a_number_that_is_no_codec() -> None:
    number: Any = 5
    with pytest.raises(ValueError, match="5 is not a valid Codec"):
        decompress(number, b"", LIMIT)
    with pytest.raises(ValueError, match="5 is not a valid Codec"):
        compress(number, b"")


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=2000))
def test_any_bytes_come_back(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize(("codec", "levels"), [(Codec.GZIP, [1, 9]), (Codec.LZ4, [1, 12]), (Codec.ZSTD, [-5, 1, 19])])
def test_levels(codec: Codec, levels: list[int]) -> None:
    sizes = [len(compress(codec, TEXT, level)) for level in levels]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level), LIMIT) == TEXT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_several_frames_in_a_row_are_one_output(codec: Codec) -> None:
    assert decompress(codec, compress(codec, TEXT) + compress(codec, b"tail"), LIMIT) == TEXT + b"tail"


@pytest.mark.parametrize("codec", COMPRESSING)
def test_output_larger_than_the_first_attempt_has_room_for(codec: Codec) -> None:
    data = bytes(3_000_000) + TEXT
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_the_limit_is_exact(codec: Codec) -> None:
    compressed = compress(codec, TEXT)
    assert len(decompress(codec, compressed, len(TEXT))) == len(TEXT)
    for limit in (len(TEXT) - 1, 10, 0):
        with pytest.raises(DecompressionLimitError, match=f"expands to more than the {limit} bytes allowed"):
            decompress(codec, compressed, limit)


def peak_growth_kb(program: str) -> int:
    """Kilobytes by which a child process grew at its peak, after its program has made `codec` and `data`."""
    code = f"""
import resource
from barnabas.records.codecs import *
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{program}
before = peak()
try:
    decompress(codec, data, 1 << 20)
except DecompressionLimitError:
    print(peak() - before)
"""
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: Codec) -> None:
    """256 MB of zeros, of which 1 MB is allowed. The bomb is made in pieces, so that making it does not set the peak.

    The limit is 1 MB; the codecs' own tables and windows are the rest.
    """
    program = f"""
codec = Codec({int(codec)})
data = compress(codec, bytes(1 << 22))
if codec is Codec.SNAPPY:
    data = data[:16] + data[16:] * 64
else:
    data = data * 64
small = decompress(codec, compress(codec, bytes(1000)), 1000)
"""
    assert peak_growth_kb(program) < 12 * 1024


def test_a_single_zstd_frame_that_is_a_bomb() -> None:
    bomb = compress(Codec.ZSTD, bytes(64 << 20))
    assert len(bomb) < 10_000
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionLimitError):
            decompress(Codec.ZSTD, bomb, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 2 * LIMIT
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSING)
def test_truncated_input_is_refused(codec: Codec) -> None:
    compressed = compress(codec, TEXT[:3000])
    # A xerial stream may end after its header, as one of nothing does.
    whole = {16} if codec is Codec.SNAPPY else set()
    for size in set(range(len(compressed))) - whole:
        with pytest.raises(DecompressionError, match=r"\.$"):
            decompress(codec, compressed[:size], LIMIT)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("garbage", [b"garbage", b"\xff" * 100, bytes(3) + b"!", TEXT[:1000]])
def test_garbage_is_refused(codec: Codec, garbage: bytes) -> None:
    with pytest.raises(CodecError):
        decompress(codec, garbage, LIMIT)


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.binary(max_size=300), changes=mutations)
def test_damage_is_refused_or_gives_bytes_within_the_limit(codec: Codec, data: bytes, changes: list[Mutation]) -> None:
    try:
        output = decompress(codec, mutated(compress(codec, data), changes), 10_000, lz4_legacy_checksum=True)
    except CodecError:
        return
    assert len(output) <= 10_000


def test_gzip_is_read_by_everyone_and_is_reproducible() -> None:
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT
    assert zlib.decompress(compress(Codec.GZIP, TEXT), 31) == TEXT
    assert decompress(Codec.GZIP, gzip.compress(TEXT), LIMIT) == TEXT
    assert compress(Codec.GZIP, TEXT) == compress(Codec.GZIP, TEXT)
    # Neither a time nor a name in the header.
    assert compress(Codec.GZIP, TEXT)[3:8] == bytes(5)


def test_snappy_is_written_in_the_framing_of_xerial() -> None:
    compressed = compress(Codec.SNAPPY, TEXT)
    assert compressed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    position = 16
    blocks = []
    while position < len(compressed):
        (length,) = struct.unpack_from(">i", compressed, position)
        blocks.append(bytes(cramjam.snappy.decompress_raw(compressed[position + 4 : position + 4 + length])))
        position += 4 + length
    assert b"".join(blocks) == TEXT
    assert [len(block) for block in blocks[:-1]] == [32768] * (len(TEXT) // 32768)


def test_raw_snappy_and_odd_version_fields_are_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), LIMIT) == TEXT
    little_endian = b"\x82SNAPPY\0" + struct.pack("<ii", 1, 1) + compress(Codec.SNAPPY, TEXT)[16:]
    assert decompress(Codec.SNAPPY, little_endian, LIMIT) == TEXT


@pytest.mark.parametrize("length", [-1, 0, 2**31 - 1, -(2**31)])
def test_xerial_lengths_that_cannot_be_right(length: int) -> None:
    good = compress(Codec.SNAPPY, b"abc")
    with pytest.raises(DecompressionError, match=f"but its length is {length}"):
        decompress(Codec.SNAPPY, good[:16] + struct.pack(">i", length) + good[20:], LIMIT)


def test_a_snappy_block_that_claims_more_than_it_can_hold() -> None:
    """Five bytes that say `a gigabyte follows` must not become a buffer of a gigabyte."""
    claim = b"\x80\x80\x80\x80\x04"
    with pytest.raises(DecompressionError, match="5 bytes cannot hold the 1073741824 bytes it claims"):
        decompress(Codec.SNAPPY, claim, 2**31)
    with pytest.raises(DecompressionLimitError):
        decompress(Codec.SNAPPY, claim, LIMIT)


def test_snappy_at_its_best_is_still_below_the_ratio_that_is_believed() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    assert decompress(Codec.SNAPPY, block, 1 << 20) == bytes(1 << 20)


def test_lz4_blocks_are_independent() -> None:
    compressed = compress(Codec.LZ4, TEXT)
    assert compressed[:4] == b"\x04\x22\x4d\x18"
    assert compressed[4] & 0x20, "Java refuses a frame whose blocks are linked."
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(TEXT)), LIMIT) == TEXT


def test_lz4_of_magic_0_has_the_wrong_header_checksum() -> None:
    wrong = compress_for(0, Codec.LZ4, TEXT)
    assert wrong != compress(Codec.LZ4, TEXT)
    with pytest.raises(DecompressionError):
        decompress(Codec.LZ4, wrong, LIMIT)
    assert decompress(Codec.LZ4, wrong, LIMIT, lz4_legacy_checksum=True) == TEXT
    # Some writers of magic 0 did it right.
    assert decompress(Codec.LZ4, compress(Codec.LZ4, TEXT), LIMIT, lz4_legacy_checksum=True) == TEXT
    for size in range(10):
        with pytest.raises(DecompressionError):
            decompress(Codec.LZ4, wrong[:size], LIMIT, lz4_legacy_checksum=True)


def test_lz4_with_the_content_size_in_its_header() -> None:
    compressed = compress(Codec.LZ4, b"abc")
    header = bytes([compressed[4] | 0x08, compressed[5]]) + struct.pack("<Q", 3)
    frame = compressed[:4] + header + b"?" + compressed[7:]
    assert decompress(Codec.LZ4, frame, LIMIT, lz4_legacy_checksum=True) == b"abc"


@pytest.mark.parametrize(
    ("data", "digest"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF), (b"abcd", 0xA3643705)]
)
def test_short_xxh32_gives_the_published_values(data: bytes, digest: int) -> None:
    assert codecs._short_xxh32(data) == digest


def test_codecs_are_imported_only_when_they_are_used() -> None:
    program = "import sys, barnabas.records.legacy; print('cramjam' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )
