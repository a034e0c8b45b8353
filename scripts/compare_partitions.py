#!/usr/bin/env python
"""Compare partitions as a paper does: the same as ``gcn-partition study``."""

import sys

from partition.cli.main import cli

if __name__ == "__main__":
    cli.main(["study", *sys.argv[1:]], prog_name="gcn-partition")
