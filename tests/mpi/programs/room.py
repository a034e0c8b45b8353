"""``infer`` and ``propagate`` where a node has so much free memory.

Usage: room.py GRAPH WEIGHTS OUT BYTES …; prints JSON lines, the command first.
"""

import json
import sys
from pathlib import Path

from gcnmpi.mpi import process
from gcnmpi.options.config import from_table
from gcnmpi.options.outputs import Inferring
from gcnmpi.propagation.running import propagate
from gcnmpi.propagation.settings import asked_for
from gcnmpi.run import room
from gcnmpi.run.inference import infer
from partition.errors import UserError


def main(world):
    """For each number of bytes, forced and not: what was said, and what was refused."""
    graph, weights, out, *sizes = sys.argv[1:]
    config, on, out = from_table({"dtype": "float64"}), (graph, f"rp-{world.size}"), Path(out)
    commands = {
        "inference": lambda tell, force: infer(
            world, Inferring(*on, config, weights, out, force=force), tell
        ),
        "sgc": lambda tell, force: propagate(world, *on, asked_for("sgc"), out, tell, force),
    }
    for name, command in commands.items():
        for size in sizes:
            room.free_bytes = lambda size=size: int(size)
            for force in (False, True):
                said, refused = [], None
                out.unlink(missing_ok=True)
                world.Barrier()
                try:
                    command(said.append, force)
                except UserError as error:
                    refused = str(error)
                there = out.exists()
                found = world.allgather((said, refused, there))  # none removes it before all looked
                if world.rank == 0:
                    print(json.dumps([name, int(size), force, *found]), flush=True)
    return 0


process.run(main)
