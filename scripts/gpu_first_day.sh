#!/usr/bin/env bash
# The first minutes on a GPU: is it right, then how fast is it. docs/gpu.md lists all that is not
# proven without one. Usage: gpu_first_day.sh [--list] [STEP…]
#
# Without STEP all are taken; a STEP may be a pattern: 'epoch-*'. Each has a time limit of its own,
# and one that fails stops no other; one that cannot be run says why. --list prints the steps, their
# limits, why one cannot be run here, and their commands. In the environment:
#   OUT       (default runs/gpu) gets four files, and a profile: summary.txt, a line a step;
#             tables.md, what was measured; results.jsonl; log.txt, all that was printed. A later
#             call adds to them.
#   WORK      (default: a folder of /tmp) is for graphs and runs, which a later call finds again
#   LIMIT     seconds that no step may exceed
#   VERTICES  of the graph that is trained on (default 200000)
# Programs are started from this checkout: nothing has to be installed but what they import, for
# tests pytest. Only "schemes" and "two-…" need mpirun, and nothing is downloaded.
set -uo pipefail
cd "$(dirname "$0")/.."
list=
if [ "${1:-}" = --list ]; then list=yes; shift; fi
chosen=("${@:-*}")
out=${OUT:-runs/gpu}
work=${WORK:-${TMPDIR:-/tmp}/gcnmpi-first-day-$(id -u)}
graph=$work/demo.graph small_graph=$work/small.graph
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$PWD" PYTHONUNBUFFERED=1
failed=

# A step: its name, its limit in seconds, why it cannot be run (empty: it can), its command.
step() {
  local name=$1 limit=$2 why=$3 began status code=0 seconds pattern wanted=
  shift 3
  for pattern in "${chosen[@]}"; do
    # shellcheck disable=SC2053  # a pattern
    if [[ $name == $pattern ]]; then wanted=yes; fi
  done
  [ -n "$wanted" ] || return 0
  [ "$limit" -le "${LIMIT:-$limit}" ] || limit=$LIMIT
  if [ -n "$list" ]; then
    printf '%-21s %3d s  %s\n' "$name" "$limit" "${why:+(not here: $why) }$*"
    return
  fi
  began=$SECONDS
  if [ -n "$why" ]; then
    status=skipped
    : > "$work/output"
  else
    timeout -k 10 "$limit" "$@" > "$work/output" 2>&1 < /dev/null || code=$?
    case $code in
      0) status=passed ;;
      124 | 137) status="out of time" ;;
      *) status=failed ;;
    esac
  fi
  [ "$code" = 0 ] || failed=yes
  seconds=$((SECONDS - began))
  { printf '\n==== %s: %s after %d s: %s\n' "$name" "$status" "$seconds" "$*"; cat "$work/output"; } \
    >> "$out/log.txt"
  python3 scripts/first_day.py "$out" "$name" "$status" "$seconds" "$why" "$work/output" "$@"
}

missing() { command -v "$1" > /dev/null || echo "there is no $1"; }
no_module() { python3 -c "import $1" 2> /dev/null || echo "no Python package $1"; }
no_gpu() {
  python3 - 2> /dev/null << 'PYTHON'
from gcnmpi.options.kernel import KERNELS
from partition.errors import UserError

try:
    KERNELS.get("cupy")("float32")
except UserError as error:
    print(error.message)
PYTHON
}
one_gpu() {
  python3 -c 'import cupy; raise SystemExit(cupy.cuda.runtime.getDeviceCount() < 2)' 2> /dev/null ||
    echo "one GPU"
}

mkdir -p "$work"
runs=$work/runs-$$  # which are of this call
[ -n "$list" ] || mkdir -p "$out"
nothing=$(python3 -c 'import partition.cli.main, mpi4py.MPI' 2>&1 | tail -n 1)
gpu=${nothing:-$(no_gpu)}
tests=${gpu:-$(no_module pytest)}
sanitizer=${tests:-$(missing compute-sanitizer)}
several=${gpu:-$(one_gpu)}
several=${several:-$(missing mpirun)}
program=(python3 -m gcnmpi) files=(python3 -m partition)
settings=(--set kernel=cupy --set train.eval_every=0 --quiet)
few=("${program[@]}" train "$graph" --set 'model.hidden=128,128' "${settings[@]}")
train=("${few[@]}" --set train.epochs=20)
small=("${program[@]}" train "$small_graph" --config configs/cora.toml --set kernel=cupy
  --set train.epochs=200 --quiet)
two=(mpirun -n 2 "${train[@]}" --partition hp-2)
# An array an allocation: in memory of CuPy's pool, a sanitizer sees neither the ends of arrays nor
# what is read before it is written.
check=(python3 -m pytest -q --no-pool -p no:cacheprovider)
kernels=tests/unit/test_kernels.py
new='cupy and float32 and (spmm or follows or counted or one_pass or softmax or dropout)'

# The machine and the versions.
step machine 20 "$(missing nvidia-smi)" nvidia-smi
step versions 60 "$nothing" "${program[@]}" info
# Is it right: every operation, memory that is touched, shared memory, then whole runs.
step kernels 260 "$tests" python3 -m pytest -q -k cupy "$kernels" \
  tests/unit/test_messages.py tests/unit/test_neighbours.py tests/unit/test_norms.py
step memcheck 120 "$sanitizer" compute-sanitizer --tool memcheck --error-exitcode 9 \
  "${check[@]}" -k "$new" "$kernels"
step initcheck 120 "$sanitizer" compute-sanitizer --tool initcheck --error-exitcode 9 \
  "${check[@]}" -k "$new" "$kernels"
step racecheck 120 "$sanitizer" compute-sanitizer --tool racecheck --error-exitcode 9 \
  "${check[@]}" -k "cupy and float32 and (counted or one_pass)" "$kernels"
step schemes 260 "${tests:-$(missing mpirun)}" python3 -m pytest -q tests/gpu
# How fast is it. Steps that follow need the graphs.
step graph 60 "$nothing" "${files[@]}" synth sbm "$graph" --vertices "${VERTICES:-200000}" --classes 40 \
  --features 100 --seed 1 --force
# Of the size of Cora: launches are what it takes, and a graph has few.
step small-graph 60 "$nothing" "${files[@]}" synth sbm "$small_graph" --vertices 2708 --classes 7 \
  --degree 4 --features 1433 --seed 1 --force
no_graph=$gpu no_small=$gpu
if [ -z "$list" ]; then
  [ -e "$graph" ] || no_graph=${gpu:-"take step graph first"}
  [ -e "$small_graph" ] || no_small=${gpu:-"take step small-graph first"}
fi
step products 90 "$no_graph" python3 benchmarks/products_gpu.py "$graph"
step epoch-own 60 "$no_graph" "${train[@]}" --out "$runs/own"
step epoch-cusparse 60 "$no_graph" "${train[@]}" --set gpu.spmm=cusparse --out "$runs/cusparse"
step epoch-captured 60 "$no_graph" "${train[@]}" --set gpu.graph=yes --out "$runs/captured"
step epoch-sage 60 "$no_graph" "${train[@]}" --set model.name=sage --out "$runs/sage"
step epoch-gat 60 "$no_graph" "${train[@]}" --set model.name=gat --out "$runs/gat"
step epoch-small 60 "$no_small" "${small[@]}" --out "$runs/small"
step epoch-small-captured 60 "$no_small" "${small[@]}" --set gpu.graph=yes \
  --out "$runs/small-captured"
step epoch-pyg 90 "${no_graph:-$(no_module torch_geometric)}" python3 benchmarks/pyg_gpu.py \
  "$graph" 128 3
# Between GPUs.
step two-partition 120 "${several:-$no_graph}" "${files[@]}" add "$graph" --model hp -k 2
step two-mpi 60 "${several:-$no_graph}" "${two[@]}" --set comm.cuda_aware=no --set comm.nccl=no \
  --out "$runs/two-mpi"
step two-cuda-aware 60 "${several:-$no_graph}" "${two[@]}" --set comm.cuda_aware=yes \
  --out "$runs/two-cuda-aware"
step two-nccl 60 "${several:-$no_graph}" "${two[@]}" --set scheme.transport=nccl \
  --set comm.nccl=yes --out "$runs/two-nccl"
step two-exchange 60 "${several:-$no_graph}" mpirun -n 2 python3 benchmarks/exchange.py "$graph" \
  --partition hp-2 --set kernel=cupy --json
# Where the time goes, within the kernels that take most of it.
step profile 120 "${no_graph:-$(missing ncu)}" ncu --clock-control none --set full \
  -k 'regex:multiply_pieces|weigh_pieces|scores|softmax|partial_sums' --launch-skip 40 -c 16 \
  --target-processes all -f -o "$out/profile" "${few[@]}" --set model.name=gat --set train.epochs=3

[ -n "$list" ] && exit
echo "results: $out"
[ -z "$failed" ]
