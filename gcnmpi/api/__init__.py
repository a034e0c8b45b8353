"""The names of ``import gcnmpi``: graphs, training, inference, records of runs, launched ranks.

Functions that train or infer are called by all ranks alike, as the rest of an MPI program; a
process that was not started by mpirun is one rank.
"""
