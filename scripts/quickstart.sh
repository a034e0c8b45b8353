#!/usr/bin/env bash
# From nothing to a comparison of three partitions on four ranks, and of one rank with four: a
# virtual environment, and `gcnmpi demo` in it.
set -euo pipefail
. "$(dirname "$0")/environment.sh" ""
gcnmpi demo --out "${1:-runs/quickstart}"
