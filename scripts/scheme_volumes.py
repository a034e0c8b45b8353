#!/usr/bin/env python
"""Bytes that ranks receive under every scheme, by number of ranks: as ``gcnmpi volumes``."""

import sys

from gcnmpi.cli.main import cli

if __name__ == "__main__":
    cli.main(["volumes", *sys.argv[1:]], prog_name="gcnmpi")
