#!/usr/bin/env bash
# The first hour on a GPU: is it right, then how fast is it. What is not proven without a GPU is in
# docs/gpu.md. Usage: gpu_first_day.sh [--dry-run] [OUT]
#
# Steps run one after the other, each for ten minutes at most; one that fails stops no other. OUT
# (default runs/gpu) gets results.jsonl, a line a step with what it measured; summary.txt; and the
# whole output of each step. A step that cannot be run says why. --dry-run prints the steps only.
# VERTICES: of the graph that is trained on. In the environment in which gcnmpi is installed, with
# its extra "test".
set -uo pipefail
cd "$(dirname "$0")/.."
dry=
if [ "${1:-}" = --dry-run ]; then dry=yes; shift; fi
out=${1:-runs/gpu}
vertices=${VERTICES:-200000}
graph=$out/demo.graph
limit=600

# The steps: its name, why it cannot be run (empty: it can), its command.
step() {
  local name=$1 why=$2 began status code seconds
  shift 2
  if [ -n "$dry" ]; then
    printf '%-28s %s\n' "$name" "${why:+(here: not run, $why) }$*"
    return
  fi
  began=$SECONDS
  if [ -n "$why" ]; then
    status=skipped
    : > "$out/$name.log"
  else
    timeout -k 10 "$limit" "$@" > "$out/$name.log" 2>&1
    code=$?
    status=failed
    [ "$code" != 0 ] || status=ok
    [ "$code" != 124 ] || status="out of time"
  fi
  seconds=$((SECONDS - began))
  python3 - "$out" "$name" "$status" "$seconds" "$why" "$*" << 'PYTHON'
import json, sys
from pathlib import Path

out, name, status, seconds, why, command = sys.argv[1:]
lines = Path(out, f"{name}.log").read_text(errors="replace").splitlines()
measured = []
for line in lines:
    try:
        measured += [json.loads(line)] if line.startswith("{") else []
    except ValueError:
        pass
words = command.split()
said = why or (lines[-1] if lines else "")
if status == "ok" and "--out" in words:  # a run: its last record
    end = json.loads(Path(words[words.index("--out") + 1], "run.jsonl").read_text().splitlines()[-1])
    measured.append({key: end[key] for key in ("seconds_per_epoch", "phases", "bytes_sent")})
    said = f"{end['seconds_per_epoch']:.4g} s an epoch"
record = {"step": name, "status": status, "seconds": int(seconds), "command": command}
record |= {"why": why} if why else {}
record |= {"measured": measured} if measured else {}
record |= {"last": lines[-5:]} if status not in ("ok", "skipped") else {}
with open(Path(out, "results.jsonl"), "a") as results:
    results.write(json.dumps(record) + "\n")
with open(Path(out, "summary.txt"), "a") as summary:
    summary.write(f"{name:28} {status:12} {seconds:>4} s  {said[:120]}\n")
PYTHON
  tail -n 1 "$out/summary.txt"
}

missing() { command -v "$1" > /dev/null || echo "there is no $1"; }
no_module() { python3 -c "import $1" 2> /dev/null || echo "the Python package $1 is not installed"; }
no_gpu() {
  python3 - << 'PYTHON'
from gcnmpi.options.kernel import KERNELS
from partition.errors import UserError

try:
    KERNELS.get("cupy")("float32")
except UserError as error:
    print(error.message)
PYTHON
}
fewer_than() {
  local found
  found=$(python3 -c 'import cupy; print(cupy.cuda.runtime.getDeviceCount())' 2> /dev/null) || found=0
  [ "$found" -ge "$1" ] || echo "it needs $1 GPUs, and there are $found"
}

if [ -z "$dry" ]; then
  mkdir -p "$out"
  rm -f "$out"/results.jsonl "$out"/summary.txt
fi
gpu=$(no_gpu)
several=${gpu:-$(fewer_than 2)}
sanitizer=${gpu:-$(missing compute-sanitizer)}
train=(gcnmpi train "$graph" --set kernel=cupy --set train.epochs=20 --set train.eval_every=0
  --set 'model.hidden=128,128' --quiet)
small=(gcnmpi train "$out/small.graph" --config configs/cora.toml --set kernel=cupy
  --set train.epochs=200 --quiet)
two=(mpirun -n 2 "${train[@]}" --partition hp-2)
kernels=tests/unit/test_kernels.py
new='cupy and (spmm or follows or counted or one_pass or softmax or dropout)'

# What there is.
step machine "$(missing nvidia-smi)" nvidia-smi
step versions "" gcnmpi info
# Is it right: every operation, memory that is touched, shared memory, then whole runs.
step kernels "$gpu" python3 -m pytest -q -k cupy "$kernels" \
  tests/unit/test_messages.py tests/unit/test_neighbours.py tests/unit/test_norms.py
step memcheck "$sanitizer" compute-sanitizer --tool memcheck --error-exitcode 9 \
  python3 -m pytest -q -k "$new" "$kernels"
step initcheck "$sanitizer" compute-sanitizer --tool initcheck --error-exitcode 9 \
  python3 -m pytest -q -k "$new" "$kernels"
step racecheck "$sanitizer" compute-sanitizer --tool racecheck --error-exitcode 9 \
  python3 -m pytest -q -k "cupy and (counted or one_pass)" "$kernels"
step schemes "$gpu" python3 -m pytest -q tests/gpu
# How fast is it.
step graph "" gcn-partition synth sbm "$graph" --vertices "$vertices" --classes 40 --features 100 \
  --seed 1 --force
step partition "" gcn-partition add "$graph" --model hp -k 2
step products "$gpu" python3 scripts/bench_products_gpu.py "$graph"
step epoch-own "$gpu" "${train[@]}" --out "$out/own"
step epoch-cusparse "$gpu" "${train[@]}" --set gpu.spmm=cusparse --out "$out/cusparse"
# Of the size of Cora: launches are what it takes, and a graph has few.
step small-graph "" gcn-partition synth sbm "$out/small.graph" --vertices 2708 --classes 7 \
  --degree 4 --features 1433 --seed 1 --force
step epoch-small "$gpu" "${small[@]}" --out "$out/small"
step epoch-small-captured "$gpu" "${small[@]}" --set gpu.graph=yes --out "$out/small-captured"
step epoch-captured "$gpu" "${train[@]}" --set gpu.graph=yes --out "$out/captured"
step epoch-host "" gcnmpi train "$graph" --set train.epochs=5 --set train.eval_every=0 \
  --set 'model.hidden=128,128' --quiet --out "$out/host"
step epoch-pyg "${gpu:-$(no_module torch_geometric)}" python3 scripts/bench_pyg_gpu.py "$graph" 128 3
# Between GPUs.
step two-mpi "$several" "${two[@]}" --set comm.cuda_aware=no --set comm.nccl=no --out "$out/two-mpi"
step two-cuda-aware "$several" "${two[@]}" --set comm.cuda_aware=yes --out "$out/two-cuda-aware"
step two-nccl "$several" "${two[@]}" --set scheme.transport=nccl --set comm.nccl=yes \
  --out "$out/two-nccl"
step exchange "$several" mpirun -n 2 gcnmpi bench exchange "$graph" --partition hp-2 \
  --set kernel=cupy --json
# Where the time goes.
step profile "${gpu:-$(missing nsys)}" nsys profile --force-overwrite true -o "$out/profile" \
  --stats true "${train[@]}"
step report "$gpu" gcnmpi report "$out"/own "$out"/cusparse "$out"/host

[ -n "$dry" ] || ! grep -q '"status": "\(failed\|out of time\)"' "$out/results.jsonl"
