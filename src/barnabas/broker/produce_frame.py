# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Finds the records in frames of produce requests, and takes plain ones to their logs; compiled as the kernel is.

Almost every produce request has one batch for one partition of one topic. Such a frame is read here without making a
message of it; the codec of `wire` reads all others, and every test compares the two. Where that batch is plain as well
(storage/log_end.py) it goes from the receive buffer to its log, and its answer into a buffer, in one loop:

    receive buffer | frame | frame | frame |  -->  PlainProduce.take  -->  Log.append_plain, once a frame
                                                                     \\-> | answer | answer | answer |

    | 0 i16 | version i16 | correlation id i32 | client id | tags | transactional id | acks i16 | time-out i32 |
    | 1 topic | its name, or its id from version 13 on | 1 partition | its number i32 | length and batch | tags 3 x |

Lengths are int16 or int32 before version 9 and compact from there on, and only then are there tagged fields.

Rule 1: what is not as usual is left to others, be it good or bad, with everything behind it: no error is answered here.
Rule 2: no byte is looked at that is not there.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from barnabas.records import cython_shim as cython

COMPILED = cython.compiled

FRAMES_MAX = 64
"""So many frames are taken at a time at most; after them other connections get their turn."""
FRAMES_A_TRANSACTION = 8
"""One that begins a transaction in its partition counts as so many: it is written down by the coordinator as well."""
ANSWERS_BYTES = 64 << 10

# A literal of more than 31 bits would be a Python object to Cython.
_SIGN_BIT = cython.declare(cython.longlong, 0x80000000)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_int32(data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = 0
    byte: cython.int
    for byte in range(4):
        value = value * 256 + data[position + byte]
    return value - (value & _SIGN_BIT) * 2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_int16(data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = data[position] * 256 + data[position + 1]
    return value - (value & 0x8000) * 2


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _transactional_id(
    frame: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, version: cython.longlong
) -> tuple[cython.Py_ssize_t, cython.longlong]:
    """Where the transactional id of a produce request is, and its length, which is 0 for none; -1 for a strange one.

    `position` is behind the client id, and at least 40 bytes follow it.
    """
    length: cython.longlong
    if version < 9:
        length = _read_int16(frame, position)
        if length == -1:
            return position + 2, 0
        if length < 1:
            return -1, 0
        return position + 2, length
    # A compact length, behind the tagged fields of the header, of which there must be none.
    length = frame[position + 1]
    if frame[position] != 0 or length == 1 or length > 127:
        return -1, 0
    if length == 0:
        return position + 2, 0
    return position + 2, length - 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _produce_head(
    frame: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, version: cython.longlong
) -> tuple[cython.Py_ssize_t, cython.longlong]:
    """Where the topic of a produce request is, and its length, or -1 for a request that is not for one topic.

    `position` is behind the transactional id, and at least 32 bytes follow it.
    """
    length: cython.longlong = 16
    # Acks (int16), time-out (int32), one topic, and its name or id.
    if version < 9:
        if _read_int32(frame, position + 6) != 1:
            return -1, 0
        return position + 12, _read_int16(frame, position + 10)
    if frame[position + 6] != 2:
        return -1, 0
    position += 7
    if version < 13:
        length = frame[position] - 1
        position += 1
        if length > 126:
            return -1, 0
    return position, length


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _produce_records(
    frame: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, version: cython.longlong
) -> tuple[cython.Py_ssize_t, cython.longlong]:
    """Where the records of a produce request begin, and their length, or -1 when it is not for one partition.

    `position` is behind the topic, and at least 13 bytes follow it.
    """
    length: cython.longlong = 0
    shift: cython.int = 0
    if version < 9:
        if _read_int32(frame, position) != 1:
            return -1, 0
        return position + 12, _read_int32(frame, position + 8)
    if frame[position] != 2:
        return -1, 0
    position += 5
    while shift < 35:
        length |= cython.cast(cython.longlong, frame[position] & 0x7F) << shift
        position += 1
        if frame[position - 1] < 0x80:
            return position, length - 1
        shift += 7
    return -1, 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _locate(
    frame: cython.const[cython.uchar][::1], size: cython.Py_ssize_t
) -> tuple[
    cython.longlong,
    cython.Py_ssize_t,
    cython.Py_ssize_t,
    cython.Py_ssize_t,
    cython.Py_ssize_t,
    cython.Py_ssize_t,
    cython.Py_ssize_t,
]:
    """The version of a request of one batch for one partition, or -1, and where its parts are.

    These are acks, the length of the transactional id before it, the topic and its end, the batch and its end.
    """
    version: cython.longlong
    head: cython.Py_ssize_t = 10
    topic: cython.Py_ssize_t
    topic_end: cython.Py_ssize_t
    start: cython.Py_ssize_t
    tail: cython.Py_ssize_t
    byte: cython.Py_ssize_t
    length: cython.longlong
    transactional: cython.longlong
    if size < 64 or frame[0] != 0 or frame[1] != 0:
        return -1, 0, 0, 0, 0, 0, 0
    version = _read_int16(frame, 2)
    if version < 3 or version > 13:
        return -1, 0, 0, 0, 0, 0, 0
    length = _read_int16(frame, 8)
    if length > 0:
        head += length
    if size < head + 40:
        return -1, 0, 0, 0, 0, 0, 0
    # A client id is text; whether one that is not ASCII is, the codec finds out.
    for byte in range(10, head):
        if frame[byte] >= 0x80:
            return -1, 0, 0, 0, 0, 0, 0
    head, transactional = _transactional_id(frame, head, version)
    if head < 0 or size < head + transactional + 38:
        return -1, 0, 0, 0, 0, 0, 0
    head += transactional
    topic, length = _produce_head(frame, head, version)
    topic_end = topic + length
    if topic < 0 or length < 1 or size < topic_end + 13:
        return -1, 0, 0, 0, 0, 0, 0
    start, length = _produce_records(frame, topic_end, version)
    # Three structures end, each with its tagged fields, of which there must be none.
    tail = 3 if version >= 9 else 0
    if start < 0 or length < 61 or start + length + tail != size:
        return -1, 0, 0, 0, 0, 0, 0
    # One whole batch of magic 2, and no zstd before version 7.
    if _read_int32(frame, start + 8) + 12 != length or frame[start + 16] != 2:
        return -1, 0, 0, 0, 0, 0, 0
    if version < 7 and frame[start + 22] & 7 == 4:
        return -1, 0, 0, 0, 0, 0, 0
    if (transactional > 0) != (frame[start + 22] & 16 != 0):
        return -1, 0, 0, 0, 0, 0, 0
    if tail and (frame[size - 1] != 0 or frame[size - 2] != 0 or frame[size - 3] != 0):
        return -1, 0, 0, 0, 0, 0, 0
    return version, head, transactional, topic, topic_end, start, start + length


def read_produce(frame: cython.const[cython.uchar][::1]) -> object:
    """Reads a produce request of one batch for one partition, which almost every one is, without making a message.

    Answers (version, correlation id, acks, time-out, topic as its bytes on the wire, partition, position and end of the
    batch, transactional id or nothing), where the topic is a name or, from version 13 on, an id; or None for every
    other frame, be it good or bad: of another API or shape, with tagged fields, with records that are not one batch, or
    transactional in the request and not in the batch, or the other way round. The codec then reads it. What else is in
    the batch is not looked at.
    """
    version, head, transactional, topic, topic_end, start, end = _locate(frame, len(frame))
    if version < 0:
        return None
    return (
        version,
        _read_int32(frame, 4),
        _read_int16(frame, head),
        _read_int32(frame, head + 2),
        bytes(frame[topic:topic_end]),
        _read_int32(frame, topic_end + (1 if version >= 9 else 4)),
        start,
        end,
        bytes(frame[head - transactional : head]) if transactional else b"",
    )


@cython.cclass
class PlainTarget:
    """A partition that plain batches may go to, and what its producers are answered in one version.

    Fields of an answer follow each other in all versions: partition, error code, base offset, log append time (-1), and
    from version 5 on the log start offset.
    """

    partition = cython.declare(object, visibility="public")
    _answer = cython.declare(cython.const[cython.uchar][::1])
    _size = cython.declare(cython.Py_ssize_t)
    _base_offset = cython.declare(cython.Py_ssize_t)
    _has_start = cython.declare(cython.bint)

    def __init__(
        self, partition: object, answer: bytes, base_offset: cython.Py_ssize_t, has_start: cython.bint
    ) -> None:
        """`answer` has everything but correlation id and offsets; `base_offset` is where that stands in it."""
        self.partition = partition
        self._answer = answer
        self._size = len(answer)
        self._base_offset = base_offset
        self._has_start = has_start


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_int64(data: cython.uchar[::1], position: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    byte: cython.int
    for byte in range(8):
        data[position + byte] = (value >> (56 - 8 * byte)) & 0xFF


@cython.cclass
class PlainProduce:
    """Takes plain produce requests from the receive buffer to the logs; one for all connections of a loop."""

    _learn = cython.declare(object)
    _admit = cython.declare(object)
    _on_change = cython.declare(object)
    _delayed_fetch = cython.declare(object)
    _delayed_produce = cython.declare(object)
    _targets = cython.declare(dict)
    _memory = cython.declare(bytearray)
    _answers = cython.declare(cython.uchar[::1])
    _filled = cython.declare(cython.Py_ssize_t)

    def __init__(
        self, learn: object, admit: object, on_change: object, delayed_fetch: object, delayed_produce: object
    ) -> None:
        """`learn(version, topic, partition)` knows the target of a request, or None; others hear of appends.

        `admit(transactional id, batch, partition, version)` raises unless that transaction may write to a partition.
        """
        self._learn = learn
        self._admit = admit
        self._on_change = on_change
        self._delayed_fetch = delayed_fetch
        self._delayed_produce = delayed_produce
        # By version, and the topic and partition as they stand in the frame.
        self._targets = {}
        self._memory = bytearray(ANSWERS_BYTES)
        self._answers = self._memory
        self._filled = 0

    def forget(self) -> None:
        """Learn all targets again, because a topic has changed."""
        self._targets.clear()

    def take(
        self,
        view: object,
        start: cython.Py_ssize_t,
        filled: cython.Py_ssize_t,
        frame_bytes_max: cython.longlong,
        now_ms: cython.longlong,
    ) -> tuple[int, int, bytes]:
        """Append the plain requests at the beginning of `view[start:filled]`, each of `frame_bytes_max` at most.

        Answers where the first frame begins that is not plain or not all there, how many were taken, and the answers to
        all of them, in order.
        """
        data: cython.const[cython.uchar][::1] = view
        size: cython.longlong
        count: cython.longlong = 0
        spent: cython.longlong = 0
        cost: cython.longlong
        self._filled = 0
        while spent < FRAMES_MAX and filled - start >= 4:
            size = _read_int32(data, start)
            if size < 64 or size > filled - start - 4 or size > frame_bytes_max:
                break
            cost = self._take_one(view, data[start + 4 : start + 4 + size], start + 4, now_ms)
            if cost == 0:
                break
            start += 4 + size
            count += 1
            spent += cost
        return start, count, bytes(self._memory[: self._filled])

    @cython.cfunc
    def _take_one(
        self,
        view: object,
        frame: cython.const[cython.uchar][::1],
        place: cython.Py_ssize_t,
        now_ms: cython.longlong,
    ) -> cython.longlong:
        """Append the batch of the frame at `place` of the view, and tell how many it counts as; 0 is not taken."""
        version, head, transactional, topic, topic_end, start, end = _locate(frame, len(frame))
        acks: cython.longlong
        first_offset: cython.longlong
        cost: cython.longlong = 1
        target: PlainTarget
        if version < 0:
            return 0
        acks = _read_int16(frame, head)
        if acks < -1 or acks > 1:
            return 0
        target = self._target(view, place, version, topic, topic_end)
        if target is None or (acks and self._filled + target._size > ANSWERS_BYTES):
            return 0
        partition = target.partition
        if partition.room or not partition.is_leader or len(partition.in_sync_replicas) != 1:
            return 0
        log = partition.log
        try:
            first_offset = log.append_plain(view, place + start, place + end, partition.leader_epoch, now_ms, False)
            # One that is only special in being transactional is usually the first one of a transaction.
            if first_offset < 0 and transactional > 0 and frame[start + 21] == 0 and frame[start + 22] == 16:
                cost = FRAMES_A_TRANSACTION
                name = view[place + head - transactional : place + head].tobytes()
                self._admit(name, view[place + start : place + end], partition, version)
                first_offset = log.append_plain(view, place + start, place + end, partition.leader_epoch, now_ms, True)
        except OSError as error:
            partition.storage_error(error)  # Nothing was appended; the long way answers what the disk makes of it.
            return 0
        except Exception:  # noqa: BLE001 (not admitted, or a bug: nothing was appended, and the long way answers)
            return 0
        if first_offset < 0:
            return 0
        stats = partition.stats
        stats.total_produce_requests += 1
        stats.bytes_in += end - start
        stats.messages_in += log.end_offset - first_offset
        if self._delayed_fetch.size or self._delayed_produce.size:
            self._on_change(partition)
        if acks:
            self._answer(target, frame, first_offset, log.log_start_offset)
        return cost

    @cython.cfunc
    def _target(
        self,
        view: object,
        place: cython.Py_ssize_t,
        version: cython.longlong,
        topic: cython.Py_ssize_t,
        topic_end: cython.Py_ssize_t,
    ) -> PlainTarget:
        index: cython.Py_ssize_t = topic_end + (1 if version >= 9 else 4)
        key = (version, view[place + topic : place + index + 4].tobytes())
        target = self._targets.get(key)
        if target is None:
            name = view[place + topic : place + topic_end].tobytes()
            number = int.from_bytes(view[place + index : place + index + 4], "big", signed=True)
            target = self._learn(version, name, number)
            if target is not None:
                self._targets[key] = target
        return target

    @cython.cfunc
    def _answer(
        self,
        target: PlainTarget,
        frame: cython.const[cython.uchar][::1],
        first_offset: cython.longlong,
        log_start_offset: cython.longlong,
    ) -> object:
        answers: cython.uchar[::1] = self._answers
        answer: cython.const[cython.uchar][::1] = target._answer
        begin: cython.Py_ssize_t = self._filled
        byte: cython.Py_ssize_t
        for byte in range(target._size):
            answers[begin + byte] = answer[byte]
        for byte in range(4):
            answers[begin + 4 + byte] = frame[4 + byte]  # The correlation id, in both behind four other bytes.
        _put_int64(answers, begin + target._base_offset, first_offset)
        if target._has_start:
            _put_int64(answers, begin + target._base_offset + 16, log_start_offset)
        self._filled = begin + target._size
        return None
