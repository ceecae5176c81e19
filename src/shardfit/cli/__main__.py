"""`python -m shardfit.cli` is the command `shardfit`."""

import sys

from shardfit.cli import main

if __name__ == "__main__":
    sys.exit(main())
