#!/usr/bin/env bash
# From nothing to a comparison of three partitions on four ranks: a virtual environment, a graph of
# 20,000 vertices with planted communities, partitions rp, gp and hp, a training run with each.
set -euo pipefail
. "$(dirname "$0")/environment.sh" ""

work=${1:-runs/quickstart}
graph=$work/sbm.graph
mkdir -p "$work"
began=$SECONDS
step() { echo "== $* ($((SECONDS - began)) s)"; }

step "making a graph of 20,000 vertices in $graph"
gcn-partition synth sbm "$graph" --vertices 20000 --classes 8 --features 64 --seed 1 --force
step "partitioning it in three ways for 4 ranks"
for model in rp gp hp; do
  gcn-partition add "$graph" --model "$model" -k 4 --name "$model-4" --if-missing
done
gcn-partition compare "$graph"
for model in rp gp hp; do
  step "training on 4 ranks with partition $model-4"
  "${MPIRUN[@]}" -n 4 gcnmpi train "$graph" --partition "$model-4" --config configs/gcn.toml \
    --set train.epochs=50 --out "$work/$model-4" --quiet
done
step "comparing the runs"
gcnmpi report "$work/rp-4" "$work/gp-4" "$work/hp-4"
