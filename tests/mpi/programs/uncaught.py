"""Under mpirun: a script that ends in the way it is told to, with gcnmpi's ranks.

Usage: uncaught.py HOW
"""

import sys

from gcnmpi.mpi.comm import MPI, agreed
from gcnmpi.mpi.process import told, world
from partition.errors import UserError


def fail():
    """Raise what nobody catches."""
    raise ArithmeticError("of a script")


comm = world()
match sys.argv[1]:
    case "on all ranks":
        told(comm, fail)
    case "a mistake of some":
        if comm.rank == 1:
            with agreed(MPI.COMM_SELF):
                raise UserError("a mistake of the user's", "a hint")
    case "told to some":
        if comm.rank == 1:
            told(MPI.COMM_SELF, fail)
comm.Barrier()
print("ends")
