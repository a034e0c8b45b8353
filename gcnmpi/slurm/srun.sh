# Without --mpi=pmix each process would believe that it is alone. One that fails ends the others.
launch=(srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}")
