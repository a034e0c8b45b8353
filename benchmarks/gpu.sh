#!/bin/sh
# SpMM beside a copy on the device, then seconds per epoch: gpu.sh G.graph [PARTITION RANKS]
set -e
graph=${1:?usage: gpu.sh G.graph [PARTITION RANKS]}
python "$(dirname "$0")/device_spmm.py" "$graph"
for kernel in cupy graphblas; do
  for ranks in 1 ${3:-}; do
    partition=
    [ "$ranks" = 1 ] || partition="--partition $2"
    echo "kernel $kernel, ranks $ranks"
    mpirun -n "$ranks" gcnmpi train "$graph" $partition --set kernel=$kernel \
      --set train.epochs=20 --set train.eval_every=0 --set model.hidden='[128,128]' | tail -n 4
  done
done
