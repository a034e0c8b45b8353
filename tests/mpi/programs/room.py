"""Under mpirun: ``infer`` and ``propagate`` where a node has so much free memory.

A case (see cases.py) is {"graph", "weights", "out", "command", "free": bytes, "force"} → for each
rank, the lines that it was told, its refusal or None, and whether the file is there.
"""

from pathlib import Path
from unittest import mock

from gcnmpi.options.config import from_table
from gcnmpi.options.outputs import Inferring
from gcnmpi.propagation.running import propagate
from gcnmpi.propagation.settings import asked_for
from gcnmpi.run import room
from gcnmpi.run.inference import infer
from partition.errors import UserError


def of_case(comm, case: dict) -> list:
    on, out, force = (case["graph"], f"rp-{comm.size}"), Path(case["out"]), case["force"]
    said, refused = [], None
    out.unlink(missing_ok=True)
    comm.Barrier()
    with mock.patch.object(room, "free_bytes", return_value=case["free"]):
        try:
            if case["command"] == "inference":
                config = from_table({"dtype": "float64"})
                asked = Inferring(*on, config, case["weights"], out, force=force)
                infer(comm, asked, said.append)
            else:
                propagate(comm, *on, asked_for(case["command"]), out, said.append, force)
        except UserError as error:
            refused = str(error)
    return comm.allgather((said, refused, out.exists()))  # none removes it before all have looked
