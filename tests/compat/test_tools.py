"""Kafka's command line tools against the broker under test."""

import itertools
import re
from pathlib import Path

import pytest

from tests.compat.brokers import RunningBroker, data_of
from tests.compat.clients import CLIENTS, Connections
from tests.compat.drivers.kafka_python import KafkaPythonDriver
from tests.compat.tool import Tool, ToolContext
from tests.compat.tools import TOOLS

pytestmark = pytest.mark.kafka

# Tests run in any order and some run twice, so that topics are told apart by number.
runs = itertools.count(1)


@pytest.mark.parametrize("tool", [pytest.param(tool, id=re.sub(r"\W+", "-", tool.name)) for tool in TOOLS])
def test_tool(
    tool: Tool, connections: Connections, compat_broker: RunningBroker, kafka_jars: Path, tmp_path: Path
) -> None:
    [client] = [client for client in CLIENTS if client.name == KafkaPythonDriver.name]
    tool.run(
        ToolContext(
            broker=compat_broker,
            driver=connections.driver(client),
            folder=tmp_path,
            data=data_of(compat_broker),
            topic=re.sub(r"\W+", "-", f"tool-{tool.name}-{next(runs)}"),
        )
    )


def test_names_are_unique() -> None:
    assert len({tool.name for tool in TOOLS}) == len(TOOLS)
