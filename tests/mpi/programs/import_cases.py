"""Under mpirun: lines of ``gcnmpi import``, with pieces so small that there are many.

Cases (see cases.py): words without "gcnmpi" → for every rank null or its complaint, as of
commands.py.
"""

from unittest.mock import patch

import commands

from gcnmpi.importing import running, vertices
from partition.importing.readers import blocks, edge_index, parquet

MOST = 400  # arcs that a rank sorts at once


def of_case(comm, words: list[str]) -> list[str | None]:
    with (
        patch.object(blocks, "BLOCK", 1),
        patch.object(edge_index, "AT_ONCE", 70),
        patch.object(parquet, "AT_ONCE", 90),
        patch.multiple(running, FEWEST=7, arcs_at_once=lambda memory, n: MOST),
        patch.object(vertices, "SAMPLES", 5),
    ):
        return comm.allgather(commands.attempt(comm, words))
