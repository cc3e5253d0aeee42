"""Bad input: random and mutated requests of every API, and plain noise, against a broker that others are using.

Whatever comes, the broker goes on, others are served, memory stays bounded, nothing is a surprise to a handler (which
would leave a stack trace in the log), and a connection leaves one line at most.

BARNABAS_FUZZ_ROUNDS=500 tries many more cases; BARNABAS_FUZZ_SEED changes which.
"""

import contextlib
import errno
import logging
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from barnabas.embedded import Broker
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.configs import (
    IncrementalAlterConfigsReqAlterableConfig,
    IncrementalAlterConfigsReqAlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.broker.asking import connected, create_topic
from tests.broker.turning import on_loop
from tests.server.random_requests import TOPIC, Case, RequestMaker, all_versions, mutated_cases
from tests.server.raw import (
    decoded,
    frame_of,
    is_served,
    lines_by,
    memory_mb,
    raw_connection,
    receive_answer,
    wait_until,
)

ROUNDS = int(os.environ.get("BARNABAS_FUZZ_ROUNDS", "12"))
SEED = int(os.environ.get("BARNABAS_FUZZ_SEED", "1"))
NOISE_CASES = 40 * ROUNDS

MARKER_ID = 0x0BADCAFE
MARKER = frame_of(ApiVersionsRequest(), 0, MARKER_ID)

# A produce with acks=0 that fails ends the connection; and what asks for nothing can not be refused in its answer.
MAY_END_THE_CONNECTION = ("Produce",)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"log.segment.delete.delay.ms": 0}) as broker:
        yield broker


@pytest.fixture
def in_process() -> Iterator[Broker]:
    with Broker(in_process=True) as broker:
        # Without faults to look for, the short way of a produce is taken too.
        on_loop(broker, lambda: setattr(broker.server.channel, "faults", None))
        yield broker


def maker_for(broker: Broker, seed: int) -> RequestMaker:
    """A maker that knows a topic of the broker; a request before may have deleted it, or be about to create it."""
    wanted = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
    with connected(broker) as connection:
        for _ in range(100):
            metadata = connection.request(MetadataRequest(topics=None), 12)
            ids = [topic.topic_id for topic in metadata.topics if topic.name == TOPIC]
            if ids:
                return RequestMaker(seed, (ids[0],))
            connection.request(CreateTopicsRequest(topics=[wanted]))
    raise AssertionError(f"{TOPIC} is deleted again and again")


def end_sending(connection: socket.socket) -> None:
    """Say that nothing more comes; the broker may have ended the connection already."""
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise


def send_and_leave(broker: Broker, data: bytes) -> bytes:
    """Send bytes and the end of the stream, and return what comes back until the broker closes."""
    answer = b""
    with raw_connection(broker) as connection, contextlib.suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(data)
        end_sending(connection)
        while more := connection.recv(65536):
            answer += more
    return answer


def check_answer(case: Case, answer: bytes) -> None:
    """The answer to a valid request is one that its client can read."""
    correlation_id = struct.unpack_from(">i", case.data, 8)[0]
    assert struct.unpack_from(">i", answer)[0] == correlation_id, case
    decoded(answer, case.api.name, case.version)


def valid_cases(maker: RequestMaker) -> Iterator[Case]:
    for api, version in all_versions():
        yield Case(api, version, "valid", maker.frame(api, version))


def ask(broker: Broker, case: Case) -> None:
    """Send a valid request and one behind it; both are answered, unless the first may end the connection."""
    with raw_connection(broker) as connection, contextlib.suppress(ConnectionResetError):
        connection.sendall(case.data + MARKER)
        answer = receive_answer(connection)
        if answer and answer[:4] != MARKER[8:12]:
            check_answer(case, answer)
            answer = receive_answer(connection)
        if answer:
            assert answer[:4] == MARKER[8:12], case
        else:
            assert case.api.name in MAY_END_THE_CONNECTION, case


def run_all(broker: Broker, seed: int) -> int:
    """Run every case; return how many connections that took."""
    connections = 0
    for number in range(ROUNDS):
        maker = maker_for(broker, seed + number)
        for case in valid_cases(maker):
            ask(broker, case)
            connections += 1
        for case in mutated_cases(maker_for(broker, seed + 1000 + number), 3):
            send_and_leave(broker, case.data)
            connections += 1
    return connections


def test_requests_of_every_api_mutated_or_not_surprise_no_handler(
    in_process: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run_all(in_process, SEED)
    # That a turn of the loop took long ("Executing ...") says something of the machine, and nothing of a handler.
    surprises = [
        record
        for record in caplog.records
        if record.exc_info or (record.name == "asyncio" and not record.getMessage().startswith("Executing "))
    ]
    assert [(record.getMessage(), record.exc_info) for record in surprises] == []
    assert is_served(in_process)
    assert on_loop(in_process, lambda: in_process.server.channel.unanswered) == 0


def test_a_broker_outlives_mutated_requests_of_every_api(broker: Broker) -> None:
    run_all(broker, SEED + 10_000)  # So that every module that it needs is in memory.
    before, lines = memory_mb(broker), len(lines_by(broker, "barnabas.server"))
    connections = run_all(broker, SEED + 20_000)
    assert is_served(broker)
    assert "Traceback" not in broker.log
    assert len(lines_by(broker, "barnabas.server")) - lines <= connections
    assert memory_mb(broker) - before < 60


@pytest.mark.parametrize("version", [0, 1])
def test_an_answer_that_would_repeat_too_much_is_cut_short(in_process: Broker, version: int) -> None:
    """A text on the wire has 32,767 bytes; a value that is not allowed used to be repeated with four bytes for one."""
    change = IncrementalAlterConfigsReqAlterableConfig(name="retention.ms", config_operation=0, value="\1" * 32_000)
    resource = IncrementalAlterConfigsReqAlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[change])
    with connected(in_process) as connection:
        create_topic(connection, TOPIC)
        answer = connection.request(IncrementalAlterConfigsRequest(resources=[resource]), version)
    assert [one.error_code for one in answer.responses] == [ErrorCode.INVALID_CONFIG]
    assert answer.responses[0].error_message.endswith("...")


def test_noise_ends_its_connection_and_nothing_else(broker: Broker) -> None:
    maker = RequestMaker(SEED)
    before = memory_mb(broker)
    with raw_connection(broker) as other:
        for number in range(NOISE_CASES):
            noise = maker.random.randbytes(maker.random.choice((1, 3, 4, 5, 14, 100, 1000, 100_000)))
            if number % 2:
                # A length that is believed, so that the noise behind it is looked at.
                noise = struct.pack(">i", len(noise)) + noise
            if number % 4 == 3:
                key = maker.random.choice(list(APIS))
                head = struct.pack(">hh", key, maker.random.randint(*APIS[key].versions))
                noise = struct.pack(">i", 4 + len(noise)) + head + noise
            send_and_leave(broker, noise)
            if number % 20 == 0:
                other.sendall(frame_of(MetadataRequest(topics=[]), 9, number))
                assert struct.unpack_from(">i", receive_answer(other))[0] == number
    assert "Traceback" not in broker.log
    assert memory_mb(broker) - before < 40


def test_each_noisy_connection_leaves_one_line(broker: Broker) -> None:
    maker = RequestMaker(SEED + 1)
    for _ in range(30):
        before = len(lines_by(broker, "barnabas.server"))
        noise = b"\x7f" + maker.random.randbytes(40)
        send_and_leave(broker, noise)
        wait_until(lambda before=before: len(lines_by(broker, "barnabas.server")) > before, "nothing was logged")  # type: ignore[misc]
        assert len(lines_by(broker, "barnabas.server")) == before + 1
