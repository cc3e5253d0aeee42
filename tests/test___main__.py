"""The package runs as the command does."""

import subprocess
import sys


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "barnabas", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("barnabas ")
