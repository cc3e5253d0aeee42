"""Bulk load into a data directory whose broker is stopped: a broker is started on it for as long as the adoption takes.

So the lock is taken, what a crash left is recovered, the same code adopts, and the directory is left as a clean stop
leaves it. Nobody is told of the address that this broker listens on.

Rule 1: only a directory that a Barnabas has used is taken: starting a broker on it must not be its migration.
Rule 2: nothing but the adoption happens to the logs. This broker does not have the settings of the one that is stopped,
and must not delete by its own.
"""

import asyncio
import os
from collections.abc import Sequence

from barnabas.broker.bulk_loads import LoadRequest
from barnabas.broker_config import resolve
from barnabas.server.broker_server import METADATA_FILE, BrokerServer, StartError
from barnabas.storage.checkpoint import META_PROPERTIES, CheckpointError, read_properties
from barnabas.storage.files import OsFiles
from barnabas.storage.load_journal import AdoptedLoad
from barnabas.wire.errors import ApiError


def adopt_stopped(log_dirs: Sequence[str], request: LoadRequest) -> AdoptedLoad:
    """Adopt a load into these directories, all that the broker has, the one with the metadata first or not.

    Raises:
        ApiError: The load is refused.
        StartError: No broker can be started on the directories.
        DirectoryLockedError: One is running.
    """
    ordered = sorted(log_dirs, key=lambda path: not os.path.exists(os.path.join(path, METADATA_FILE)))
    if not os.path.exists(os.path.join(ordered[0], METADATA_FILE)):
        raise StartError(f"{ordered[0]} is no data directory of a Barnabas broker: it has no {METADATA_FILE}")
    path = os.path.join(ordered[0], META_PROPERTIES)
    try:
        node_id = read_properties(OsFiles(), path).get("node.id", "1")
    except CheckpointError as error:
        raise StartError(str(error)) from None
    settings = resolve(
        {"log.dirs": ",".join(ordered), "listeners": "PLAINTEXT://127.0.0.1:0", "node.id": node_id},
    )
    return asyncio.run(_adopt(BrokerServer(settings, is_upkept=False), request))


async def _adopt(server: BrokerServer, request: LoadRequest) -> AdoptedLoad:
    result: asyncio.Future[AdoptedLoad | ApiError] = asyncio.get_running_loop().create_future()
    await server.start()
    try:
        server.services.bulk_loads.adopt(request, result.set_result)
        adopted = await result
    finally:
        await server.stop()
    if isinstance(adopted, ApiError):
        raise adopted
    return adopted
