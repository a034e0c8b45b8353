# One rank for each GPU, which sees no other; cores are those that are near to it.
launch=(srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}"
  --gpus-per-task=1 --gpu-bind=single:1 --cpu-bind=cores)
