"""AdoptSegments: v0, an API of our own. Segments that a bulk load wrote beside the logs of a topic become part of them.

Behaviour: all partitions of the load or none; see broker/bulk_loads.py. The request names no files: they are in a
folder with the load's id, inside the folder of each partition, and nowhere else. The answer comes when everything is on
the disk, with the offsets that the records got.

Errors: DUPLICATE_RESOURCE for a load that was adopted before, with where its records are, so that a client that lost
the answer to its first request learns what became of it; INVALID_REQUEST for files that are not there or not right,
with the file in the message; those of Produce for partitions that are not here.
"""

from typing import Any

from barnabas.broker.apis.gathering import Gathering
from barnabas.broker.bulk_loads import LoadRequest, RepeatedLoadError
from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.storage.load_journal import AdoptedLoad
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.adopt_segments import (
    AdoptedSegmentsPartition,
    AdoptSegmentsRequest,
    AdoptSegmentsResponse,
)


def handle_adopt_segments(broker: Services, request: Request, body: AdoptSegmentsRequest) -> Any:
    """Adopt a load, and answer when that is done."""
    answer = AdoptSegmentsResponse()
    gathering = Gathering(request, answer)

    def take(result: AdoptedLoad | ApiError) -> None:
        if isinstance(result, ApiError):
            answer.error_code, answer.error_message = int(result.code), result.message
        load = result.load if isinstance(result, RepeatedLoadError) else result
        if isinstance(load, AdoptedLoad):
            answer.partitions = [
                AdoptedSegmentsPartition(
                    partition_index=one.partition, base_offset=one.base_offset, end_offset=one.end_offset
                )
                for one in load.partitions
            ]

    wanted = LoadRequest(
        load_id=body.load_id, topic=body.topic, partitions=tuple(body.partitions), check_crcs=body.check_crcs
    )
    broker.bulk_loads.adopt(wanted, gathering.expect(take))
    return gathering.outcome()
