#!/usr/bin/env bash
# The tests of every change: a virtual environment with the test extra, then pytest; it starts the MPI tests under
# mpirun itself, with 1 to 4 ranks and more. Arguments go to pytest; --quick is for everyday work:
# the unit tests but the slow ones, and a few launches, in a minute on two cores.
set -euo pipefail
. "$(dirname "$0")/environment.sh" test
# Three files of tests at a time, on two cores: most tests wait for launchers and single processes.
# More would take the cores from ranks that have to answer in time.
# Small products are done before a second thread has woken, which then spins for some ms.
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
python -m pytest -n 3 --dist loadfile --no-loadscope-reorder "$@"
[ $# -gt 0 ] || for folder in "${jitted[@]}"; do
  keep "$jit-${folder#*/}" "$folder"/__pycache__/*.nb?
done
