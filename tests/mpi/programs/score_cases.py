"""Under mpirun: scores of pairs and best partners, in tiles so small that there are many.

Cases (see cases.py): the arguments of ``gcnmpi.score``, or of ``gcnmpi.top`` if "k" is among them,
→ what it returned on rank 0. Pairs and vertices are lists.
"""

from unittest.mock import patch

import gcnmpi
from gcnmpi.run.links import asked, partners


def of_case(comm, case):
    of_tiles = patch.multiple(partners, BLOCK=7, SCORED_AT_ONCE=60)
    with of_tiles, patch.object(asked, "AT_ONCE", 11):
        if "k" in case:
            found = gcnmpi.top(comm=comm, **case)
            return found and {name: column.tolist() for name, column in found.items()}
        found = gcnmpi.score(comm=comm, **case)
        return None if found is None else found.tolist()
