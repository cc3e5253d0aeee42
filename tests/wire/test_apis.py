"""The table of APIs: kio says the same of names and flexible versions, and nothing is imported early."""

import subprocess
import sys

from kio.index import load_request_schema

from barnabas.wire.apis import APIS, NEVER_FLEXIBLE, PRIVATE_KEYS


def test_keys_names_and_flexible_versions_are_kafka_s() -> None:
    for api in APIS.values():
        for version in (
            ()
            if api.key in PRIVATE_KEYS
            else range(max(api.versions.low, 3 if api.name == "Produce" else 0), api.versions.high + 1)
        ):
            theirs = load_request_schema(api.key, version)
            assert theirs.__name__ == api.name + "Request"
            assert theirs.__flexible__ == api.is_flexible(version), (api, version)
        assert api.flexible_since <= NEVER_FLEXIBLE
        assert api.request.__name__ == api.name + "Request"
        assert api.response.__name__ == api.name + "Response"


def test_messages_are_imported_when_they_are_used() -> None:
    code = "import sys, barnabas.wire.apis; sys.exit(any('wire.messages.' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
