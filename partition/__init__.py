"""Offline partitioning of graphs: which rank owns which rows.

Serial, and free of MPI. The trainer (package ``gcnmpi``) imports from here only the modules that
lie in no room, the room ``graph``, ``importing.synthetic`` and ``backends.catalogue``.
"""

import os

# With colorama, Numba ends a program by a code of colours: behind the JSON of a rank, whose output
# mpirun reads as from a terminal.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
