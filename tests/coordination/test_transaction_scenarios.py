"""Transactions told as scripts: each command of transaction_scenarios/*.txt is followed by what comes of it.

    commit t producer=1000 epoch=0        what is done
    ----
    answer NONE producer=1000 epoch=1     what the client is told
    record t PrepareCommit ...            what is persisted before
    markers t commit ...                  what goes to the partitions after

REWRITE_SCENARIOS=1 pytest tests/coordination/test_transaction_scenarios.py writes down what comes of the commands now.
Only commit the changes if you understand what caused them.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.coordination.records import TRANSACTION_KINDS, decode, encode
from barnabas.coordination.step import CoordinatorRecord
from barnabas.coordination.transaction import STATUS_NAMES, TransactionStatus
from barnabas.coordination.transaction_coordinator import TransactionCoordinator, TransactionStep
from barnabas.coordinator_config import TransactionConfig
from barnabas.model import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.producers import InitProducerIdRequest
from barnabas.wire.messages.transactions import EndTxnRequest

SCENARIOS = sorted((Path(__file__).parent / "transaction_scenarios").glob("*.txt"))
START_MS = 1_000_000


class Command(NamedTuple):
    """One line of a script: a verb, words, and options as name=value."""

    verb: str
    words: tuple[str, ...]
    options: dict[str, str]

    @classmethod
    def parse(cls, line: str) -> "Command":
        verb, *rest = line.split()
        words = tuple(word for word in rest if "=" not in word)
        return cls(verb, words, dict(word.split("=", 1) for word in rest if "=" in word))

    def number(self, name: str, default: int) -> int:
        return int(self.options.get(name, default))

    def partitions(self) -> list[TopicPartition]:
        """The words after the transactional id: `orders-0,1` are two partitions."""
        found = []
        for word in self.words[1:]:
            topic, _, numbers = word.rpartition("-")
            found += [TopicPartition(topic, int(number)) for number in numbers.split(",")]
        return found


def shown_partitions(partitions: Iterator[TopicPartition]) -> str:
    topics: dict[str, list[str]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}-{','.join(numbers)}" for topic, numbers in topics.items())


def shown_record(record: CoordinatorRecord) -> str:
    if record.value is None:
        return f"record {record.key.transactional_id} deleted"
    value = record.value
    words = [
        f"record {record.key.transactional_id}",
        STATUS_NAMES[TransactionStatus(value.transaction_status)],
        f"producer={value.producer_id}",
        f"epoch={value.producer_epoch}",
    ]
    if value.previous_producer_id != value.producer_id:
        words.append(f"previous={value.previous_producer_id}")
    if value.next_producer_id != -1:
        words.append(f"next={value.next_producer_id}")
    words.append(f"version={value.client_transaction_version}")
    words.append(
        shown_partitions(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        )
    )
    return " ".join(words).rstrip()


class Scenario:
    """A coordinator, its log, and a clock that only a script moves."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.log: dict[bytes, bytes | None] = {}
        self.next_producer_id = 1000
        self.config = TransactionConfig(transactional_id_expiration_ms=3_600_000)
        self.coordinator_epoch = 0
        self.coordinator = TransactionCoordinator(self.config, self.coordinator_epoch)

    def run(self, command: Command) -> list[str]:
        run = getattr(self, f"do_{command.verb}", None)
        assert run is not None, f"there is no command {command.verb}"
        lines: list[str] = run(command)
        return lines

    def carried_out(self, step: TransactionStep) -> list[str]:
        """Append the records, and tell what the step is."""
        lines = []
        for reply in step.replies:
            message = reply.message
            words = [f"answer {ErrorCode(message.error_code).name}"]
            if message.producer_id != -1:
                words.append(f"producer={message.producer_id} epoch={message.producer_epoch}")
            lines.append(" ".join(words))
        for record in step.records:
            key, value = encode(record)
            self.log.pop(key, None)
            self.log[key] = value
            lines.append(shown_record(record))
        for markers in step.markers:
            lines.append(
                f"markers {markers.transactional_id} {'commit' if markers.is_commit else 'abort'}"
                f" producer={markers.producer_id} epoch={markers.producer_epoch}"
                f" coordinator={markers.coordinator_epoch} version={markers.transaction_version}"
                f" {shown_partitions(iter(markers.partitions))}"
            )
        return lines

    def new_producer_id(self, is_needed: bool) -> int | None:
        if not is_needed:
            return None
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def do_init(self, command: Command) -> list[str]:
        request = InitProducerIdRequest(
            transactional_id=command.words[0] if command.words else None,
            transaction_timeout_ms=command.number("timeout", 60_000),
            producer_id=command.number("producer", -1),
            producer_epoch=command.number("epoch", -1),
        )
        new_id = self.new_producer_id(self.coordinator.needs_producer_id(request))
        version = command.number("version", 5)
        return self.carried_out(self.coordinator.init_producer_id("ticket", request, version, self.now_ms, new_id))

    def do_add(self, command: Command) -> list[str]:
        error, step = self.coordinator.add_partitions_to_transaction(
            command.words[0],
            command.number("producer", -1),
            command.number("epoch", -1),
            command.partitions(),
            False,
            command.number("version", 2),
            self.now_ms,
        )
        assert isinstance(error, ErrorCode)
        return [f"answer {error.name}", *self.carried_out(step)]

    def do_verify(self, command: Command) -> list[str]:
        return [
            f"{partition} "
            + self.coordinator.verify(
                command.words[0], command.number("producer", -1), command.number("epoch", -1), partition
            ).name
            for partition in command.partitions()
        ]

    def do_commit(self, command: Command) -> list[str]:
        return self.end(command, True)

    def do_abort(self, command: Command) -> list[str]:
        return self.end(command, False)

    def end(self, command: Command, is_commit: bool) -> list[str]:
        request = EndTxnRequest(
            transactional_id=command.words[0],
            producer_id=command.number("producer", -1),
            producer_epoch=command.number("epoch", -1),
            committed=is_commit,
        )
        version = command.number("version", 5)
        new_id = self.new_producer_id(self.coordinator.needs_producer_id_to_end(request, version))
        return self.carried_out(self.coordinator.end_transaction("ticket", request, version, self.now_ms, new_id))

    def do_written(self, command: Command) -> list[str]:
        step = self.coordinator.markers_written(
            command.words[0],
            command.number("producer", -1),
            command.number("epoch", -1),
            command.partitions(),
            self.now_ms,
        )
        return self.carried_out(step)

    def do_wait(self, command: Command) -> list[str]:
        """Let seconds pass, and then tick."""
        self.now_ms += int(command.words[0]) * 1000
        return self.carried_out(self.coordinator.tick(self.now_ms))

    def do_deadline(self, _command: Command) -> list[str]:
        deadline_ms = self.coordinator.next_deadline_ms
        return ["none"] if deadline_ms is None else [f"in {(deadline_ms - self.now_ms) / 1000:g} s"]

    def do_crash(self, _command: Command) -> list[str]:
        """Throw the coordinator away and make it anew from its log, compacted."""
        self.coordinator_epoch += 1
        self.coordinator = TransactionCoordinator(self.config, self.coordinator_epoch)
        for key, value in self.log.items():
            record = decode(TRANSACTION_KINDS, key, value)
            assert record is not None
            self.coordinator.replay(record)
        return self.carried_out(self.coordinator.finish_loading(self.now_ms))

    def do_epoch(self, command: Command) -> list[str]:
        """Make an epoch of a transactional id that would take long to get to."""
        self.coordinator._transactions[command.words[0]].producer_epoch = int(command.words[1])
        return []

    def do_describe(self, command: Command) -> list[str]:
        state = self.coordinator.describe(command.words[0])
        if state.error_code:
            return [ErrorCode(state.error_code).name]
        topics = shown_partitions(TopicPartition(topic.topic, p) for topic in state.topics for p in topic.partitions)
        started = state.transaction_start_time_ms
        words = [
            state.transaction_state,
            f"producer={state.producer_id} epoch={state.producer_epoch} timeout={state.transaction_timeout_ms}",
            f"started={'never' if started == -1 else f'{(self.now_ms - started) / 1000:g}s ago'}",
            topics,
        ]
        return [" ".join(words).rstrip()]

    def do_list(self, command: Command) -> list[str]:
        pattern = command.options.get("pattern")
        listed = self.coordinator.list(
            command.options["states"].split(",") if "states" in command.options else [],
            [int(command.options["producer"])] if "producer" in command.options else [],
            command.number("longer", -1),
            None if pattern is None else re.compile(pattern),
            self.now_ms,
        )
        return [f"{item.transactional_id} producer={item.producer_id} {item.transaction_state}" for item in listed]


def played(text: str) -> str:
    """The script again, each command with what comes of it now."""
    scenario = Scenario()
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        asked, _, _ = block.partition("\n----")
        commands = [line for line in asked.splitlines() if not line.startswith("#")]
        lines += asked.splitlines()
        if commands:
            outcome: list[Any] = []
            for line in commands:
                outcome += scenario.run(Command.parse(line))
            lines += ["----", *(outcome or ["nothing"])]
        lines.append("")
    return "\n".join(lines)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    recorded = path.read_text(encoding="utf-8")
    outcome = played(recorded)
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(outcome, encoding="utf-8")
    else:
        assert outcome == recorded


def test_there_are_scenarios() -> None:
    assert SCENARIOS
