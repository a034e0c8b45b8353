"""``infer`` and ``propagate`` where a node has so much free memory.

Usage: room.py GRAPH WEIGHTS OUT BYTES …; prints JSON lines, the command first.
"""

import json
import sys
from pathlib import Path

from gcnmpi.mpi import comm
from gcnmpi.options.config import from_table
from gcnmpi.propagation.running import propagate
from gcnmpi.propagation.settings import asked_for
from gcnmpi.run import room
from gcnmpi.run.inference import infer
from partition.errors import UserError


def main(world):
    """For each number of bytes, forced and not: what was said, and what was refused."""
    graph, weights, out, *sizes = sys.argv[1:]
    config, on = from_table({"dtype": "float64"}), (world, graph, f"rp-{world.size}")
    commands = {
        "inference": lambda options: infer(*on, config, weights, out, **options),
        "sgc": lambda options: propagate(*on, asked_for("sgc"), out, **options),
    }
    for name, command in commands.items():
        for size in sizes:
            room.free_bytes = lambda size=size: int(size)
            for force in (False, True):
                said, refused = [], None
                Path(out).unlink(missing_ok=True)
                world.Barrier()
                try:
                    command({"force": force, "tell": said.append})
                except UserError as error:
                    refused = str(error)
                there = Path(out).exists()
                found = world.allgather((said, refused, there))  # none removes it before all looked
                if world.rank == 0:
                    print(json.dumps([name, int(size), force, *found]), flush=True)
    return 0


comm.run(main)
