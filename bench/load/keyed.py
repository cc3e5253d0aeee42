"""Writes records with keys to one partition, every key once and then all again: what compaction is made for.

Bytes are built once for all keys, and sent as often as there are passes; only the last pass survives a clean.
"""

import random
import socket
import time

from barnabas.records.builder import build_batch
from barnabas.wire.apis import response_decoder
from bench.load.producing import RECEIVE_BYTES, SILENCE_S_MAX
from bench.load.requests import PRODUCE, PRODUCE_VERSION, produce_frame
from bench.load.spec import LoadError, LoadSpec

IN_FLIGHT = 5
KEY_DIGITS = 10
ANSWER_HEADER_BYTES = 9


class KeyedLoad:
    """The frames of one pass over all keys."""

    def __init__(self, spec: LoadSpec, keys: int) -> None:
        """`spec` says where to, and how large records and batches are."""
        chance = random.Random(spec.seed)
        per_batch = max(1, spec.batch_bytes // (spec.record_bytes + 12))
        self._port = spec.port
        self._frames: list[bytes] = []
        self.batch_bytes = 0
        order = list(range(keys))
        chance.shuffle(order)
        for first in range(0, keys, per_batch):
            records = [
                (spec.timestamp_ms, b"%0*d" % (KEY_DIGITS, key), chance.randbytes(spec.record_bytes - KEY_DIGITS), ())
                for key in order[first : first + per_batch]
            ]
            batch = bytes(build_batch(records))
            self.batch_bytes += len(batch)
            self._frames.append(produce_frame(spec, 0, batch, len(self._frames)))

    def write(self, bytes_min: int) -> int:
        """Write whole passes until there are so many bytes of batches; returns how many there are."""
        written = 0
        deadline = time.monotonic() + SILENCE_S_MAX * (2 + bytes_min / 1e9)
        with socket.create_connection(("127.0.0.1", self._port), timeout=SILENCE_S_MAX) as connection:
            answers = _Answers(connection)
            while written < bytes_min:
                for number, frame in enumerate(self._frames):
                    connection.sendall(frame)
                    if number >= IN_FLIGHT:
                        answers.take()
                for _ in range(min(IN_FLIGHT, len(self._frames))):
                    answers.take()
                written += self.batch_bytes
                if time.monotonic() > deadline:
                    raise LoadError("writing records with keys takes too long")
        return written


class _Answers:
    """The answers of a connection, one after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = b""

    def take(self) -> None:
        """Wait for one, and raise LoadError if it is not a yes."""
        frame = self._frame()
        response, _ = response_decoder(PRODUCE, PRODUCE_VERSION)(frame, ANSWER_HEADER_BYTES - 4)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code:
            raise LoadError(f"a batch is refused: error {answer.error_code}, {answer.error_message}")

    def _frame(self) -> bytes:
        while len(self._data) < 4 or len(self._data) < 4 + int.from_bytes(self._data[:4], "big"):
            part = self._connection.recv(RECEIVE_BYTES)
            if not part:
                raise LoadError("the broker closed a connection")
            self._data += part
        end = 4 + int.from_bytes(self._data[:4], "big")
        frame, self._data = self._data[4:end], self._data[end:]
        return frame
