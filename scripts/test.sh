#!/usr/bin/env bash
# Every test: a virtual environment with the test extra, then pytest; it starts the MPI tests under
# mpirun itself, with 1 to 4 ranks and more. Arguments go to pytest.
set -euo pipefail
. "$(dirname "$0")/environment.sh" test
exec python -m pytest "$@"
