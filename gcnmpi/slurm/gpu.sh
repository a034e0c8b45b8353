# One rank for each GPU, which it chooses by its place on the node. All see all GPUs of the node: where
# each sees its own only (single:1), CUDA cannot copy between them directly.
launch=(srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}"
  --gpus-per-node="$SLURM_GPUS_PER_NODE" --gpu-bind=none --cpu-bind=cores)
