# mpirun takes hosts and ranks from the allocation, inside which it must be the same MPI that
# mpi4py uses. Several cores a rank have to be asked for, or Open MPI binds to fewer.
launch=(mpirun -n "$SLURM_NTASKS")
if [ "${SLURM_CPUS_PER_TASK:-1}" -gt 1 ]; then
  if mpirun --version | grep -qi 'open mpi\|prte'; then
    launch+=(--map-by "slot:PE=$SLURM_CPUS_PER_TASK")
  else
    launch+=(-bind-to "core:$SLURM_CPUS_PER_TASK")
  fi
fi
