"""Under mpirun: lines of ``gcnmpi import``, with pieces so small that there are many.

Cases (see cases.py): words without "gcnmpi" → for every rank null or its complaint, as of
commands.py. With "touched" before them, the file changes when it is being read.
"""

import os
from unittest.mock import patch

import commands

from gcnmpi.importing import running, vertices
from partition.importing.readers import arc_lists, parquet, text

open_stream = running.open_stream
MOST = 400  # arcs that a rank sorts at once


def touching(source, *given):
    os.utime(source, (1, 1))
    return open_stream(source, *given)


def of_case(comm, words: list[str]) -> list[str | None]:
    touched = words[0] == "touched"
    with (
        patch.object(text, "BLOCK", 1),
        patch.object(vertices, "SAMPLES", 5),
        patch.object(arc_lists, "AT_ONCE", 70),
        patch.object(parquet, "AT_ONCE", 90),
        patch.multiple(running, FEWEST=7, arcs_at_once=lambda memory, n: MOST),
        patch.object(running, "open_stream", touching if touched else open_stream),
    ):
        return comm.allgather(commands.attempt(comm, words[touched:]))
