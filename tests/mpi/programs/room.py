"""``infer`` where a node has so much free memory: room.py GRAPH WEIGHTS OUT BYTES …; JSON lines."""

import json
import sys
from pathlib import Path

from gcnmpi.core.config import from_table
from gcnmpi.mpi import comm
from gcnmpi.run import room
from gcnmpi.run.inference import infer
from partition.errors import UserError


def main(world):
    """For each number of bytes, forced and not: what was said, and what was refused."""
    graph, weights, out, *sizes = sys.argv[1:]
    config = from_table({"dtype": "float64"})
    for size in sizes:
        room.free_bytes = lambda size=size: int(size)
        for force in (False, True):
            said, refused = [], None
            Path(out).unlink(missing_ok=True)
            world.Barrier()
            options = {"force": force, "tell": said.append}
            try:
                infer(world, graph, f"rp-{world.size}", config, weights, out, **options)
            except UserError as error:
                refused = str(error)
            there = Path(out).exists()
            found = world.allgather((said, refused, there))  # none removes it before all looked
            if world.rank == 0:
                print(json.dumps(found), flush=True)
    return 0


comm.run(main)
