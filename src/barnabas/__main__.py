"""`python -m barnabas`, which is the command `barnabas`."""

import sys

from barnabas.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
