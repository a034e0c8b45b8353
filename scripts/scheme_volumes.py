#!/usr/bin/env python
"""What ranks receive under every scheme, over their number: the same as ``gcnmpi volumes``."""

import sys

from gcnmpi.cli.main import cli

if __name__ == "__main__":
    cli.main(["volumes", *sys.argv[1:]], prog_name="gcnmpi")
