#!/usr/bin/env bash
# The tests that a change cannot wait for: every combination of their grids and every page,
# the small faults that tests must notice, random inputs, the GPU kernel's every access to memory, and
# other programs' layers where these are installed. All parts run; the exit code says whether one failed.
# Usage: scripts/nightly.sh [PART …]
set -uo pipefail
. "$(dirname "$0")/environment.sh" test

tests() { GCNMPI_TESTS=all ./scripts/test.sh -n 2; } # more would slow launches of thousands of cases, which have a limit
faults() { python scripts/mutants.py --jobs 2; }
fuzz() { python scripts/fuzz.py --seconds 30; } # of processor time for each of some 18 readers
emulator() { python scripts/check_cuda.py --emulate; }
layers() {
  python -c "import torch_geometric" 2> /dev/null || { echo "PyTorch Geometric is not installed"; return 77; }
  python tests/differential/compare.py
}

summary=()
failed=0
for part in "${@:-tests faults fuzz emulator layers}"; do
  for name in $part; do
    SECONDS=0
    "$name"
    case $? in
      0) result=passed ;;
      77) result="NOT RUN" ;; # what it needs is not installed
      *) result=FAILED failed=1 ;;
    esac
    summary+=("$name: $result in $((SECONDS / 60)) min $((SECONDS % 60)) s")
  done
done
printf '%s\n' "${summary[@]}"
exit "$failed"
