"""ApiVersions: v0-4, which APIs and versions this broker speaks.

Behaviour: exactly the APIs of the dispatch table, with the versions of wire/apis.py. A version of ApiVersions itself
that is not known is answered in version 0 with UNSUPPORTED_VERSION (KIP-511), before any handler is asked.

Versions: 3+ the client says its name and version (KIP-511); 4+ features with a minimum of 0 may be told (KIP-1142).
Features: transactions of version 2 (KIP-890) and consumer groups (KIP-848), both in force from the start.
"""

from functools import cache

from barnabas.broker.dispatch import HANDLERS
from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

FEATURES = {"group.version": 1, "transaction.version": 2}
"""What is in force, and nothing else can be: a client that heeds it speaks the newer protocols."""
FEATURES_EPOCH = 0
FEATURES_VERSION = 3


@cache
def spoken() -> tuple[ApiVersion, ...]:
    """Return what every client is told."""
    return tuple(
        ApiVersion(api_key=key, min_version=APIS[key].versions.low, max_version=APIS[key].versions.high)
        for key in sorted(HANDLERS)
    )


def handle_api_versions(broker: Services, request: Request, body: ApiVersionsRequest) -> ApiVersionsResponse:
    """Answer with the table."""
    if request.version >= 3 and not (_is_name(body.client_software_name) and _is_name(body.client_software_version)):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    answer = ApiVersionsResponse(api_keys=list(spoken()))
    if request.version >= FEATURES_VERSION:
        answer.finalized_features_epoch = FEATURES_EPOCH
        answer.finalized_features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
        ]
    if request.version > FEATURES_VERSION:
        # Older clients fail on a feature whose lowest version is 0.
        answer.supported_features = [
            SupportedFeatureKey(name=name, min_version=0, max_version=level) for name, level in FEATURES.items()
        ]
    return answer


def _is_name(text: str) -> bool:
    """Tell whether a client's name is one that may go into a log or a metric (KIP-511)."""
    ends = text[:1] + text[-1:]
    return text.isascii() and ends.isalnum() and all(character.isalnum() or character in "-." for character in text)
