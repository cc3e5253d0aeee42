"""A stream to Parquet as the first query of a session, in a process of its own; prints the seconds that it took.

python -m bench.spark.first_stream SOURCE SERVERS TOPIC FOLDER

The source is the name of a format, or `archive` for the job.
"""

import sys
from pathlib import Path

from bench.spark import queries
from bench.spark.session import start_session


def main() -> None:
    """Run it, and end."""
    source, servers, topic, folder = sys.argv[1:]
    session = start_session()
    if source == "archive":
        seconds, _ = queries.archive_topic(session, topic, servers, Path(folder))
    else:
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
        seconds = queries.stream_to_parquet(session, source, options, Path(folder))
    print(seconds)
    session.stop()


if __name__ == "__main__":
    main()
