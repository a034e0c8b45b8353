"""Under mpirun: propagations that end after some checkpoints, and go on from them.

A case (see cases.py) is a folder with symmetric.graph and other.graph, and with partitions of as
many parts as there are ranks. The result is, for each method, whether an interrupted run gave the
same bits, and the words that it said; and how runs were refused that do not belong to a checkpoint.
"""

import shutil
from pathlib import Path

from gcnmpi.propagation.checkpoint import Checkpoints
from gcnmpi.propagation.running import propagate
from gcnmpi.propagation.settings import asked_for
from partition.errors import UserError

METHODS = {
    "pagerank": ("pagerank", ["tolerance=1e-12"], 5),
    "laplacian-eigenvectors": (
        "laplacian-eigenvectors", ["count=6", "block=2", "degree=3"], 12
    ),
    "prone, power iterations": ("embed", ["method=prone", "dimension=6"], 3),
    "prone, filter": ("embed", ["method=prone", "dimension=6"], 9),
    "randsvd": ("embed", ["method=randsvd", "dimension=6"], 2),
}  # fmt: skip


class Interrupted(Exception):
    """Raised to end a run after a checkpoint."""


def of_case(comm, folder: str) -> dict:
    folder, said = Path(folder), []

    def run(name, settings, graph="symmetric", partition=f"p{comm.size}", force=False):
        said.clear()
        asked = asked_for(name, ["threads=1", *settings])
        (folder / "kept").mkdir(exist_ok=True)  # as the command does, which claims it
        given = asked, None, said.append, force
        try:
            return propagate(comm, folder / f"{graph}.graph", partition, *given)
        except UserError as error:
            return str(error)

    def values(done):
        return [done.values, *done.outcome.arrays.values()] if comm.rank == 0 else []

    save, kept = Checkpoints.save, ["checkpoint=" + str(folder / "kept"), "every=0"]

    def interrupt(name, settings, most):
        """Run until so many checkpoints are written."""
        count = 0

        def stop(self, *arguments):
            nonlocal count
            save(self, *arguments)
            count += 1
            if count == most:
                raise Interrupted

        if comm.rank == 0:
            shutil.rmtree(folder / "kept", ignore_errors=True)
        comm.Barrier()
        Checkpoints.save = stop
        try:
            run(name, [*settings, *kept])
        except Interrupted:
            return
        finally:
            Checkpoints.save = save
            comm.Barrier()
        raise AssertionError(f"{name} ended before")

    results = {"methods": {}, "refused": {}}
    for title, (name, settings, most) in METHODS.items():
        whole = values(run(name, settings))
        interrupt(name, settings, most)
        before = len(list((folder / "kept").iterdir()))
        comm.Barrier()
        resumed = run(name, [*settings, *kept])
        pairs = zip(whole, values(resumed), strict=True)
        same = all(first.tobytes() == second.tobytes() for first, second in pairs)
        results["methods"][title] = [bool(same), before, said[:]]
        comm.Barrier()

    name, settings, _ = METHODS["pagerank"]
    interrupt(name, settings, 5)
    newest = folder / "kept" / "step-000005"
    cases = {
        "option": (name, [*settings, "damping=0.5"], {}),
        "method": ("laplacian-eigenvectors", [], {}),
        "matrix": (name, [*settings, "graph.direction=out"], {}),
        "dtype": (name, [*settings, "dtype=float32"], {}),
        "graph": (name, settings, {"graph": "other"}),
        "rounding": (name, [*settings, "loading.order=none"], {}),
        "partition": (name, settings, {"partition": "q"}),
    }
    for title, (method, words, where) in cases.items():
        results["refused"][title] = comm.allgather(str(run(method, [*words, *kept], **where))[:400])
    forced = run(name, [*settings, "loading.order=none", *kept], force=True)
    results["forced"] = [list(forced.warnings), 0 if comm.rank else float(forced.values.sum())]

    # The newest is damaged; then both are. The leftovers of a killed run are removed.
    whole = values(run(name, settings))
    interrupt(name, settings, 5)
    if comm.rank == 0:
        with open(newest / "x.npy", "r+b") as file:
            file.seek(200)
            file.write(b"\x07\x07\x07")
        (folder / "kept" / ".step-000006.tmp").mkdir()
    comm.Barrier()
    done = run(name, [*settings, *kept])
    same = all(a.tobytes() == b.tobytes() for a, b in zip(whole, values(done), strict=True))
    left = [path.name for path in (folder / "kept").glob(".*.tmp")]
    results["damaged"] = [same, list(done.warnings), left]
    comm.Barrier()
    if comm.rank == 0:
        for path in (folder / "kept").glob("step-*"):
            (path / "manifest.json").unlink()
    comm.Barrier()
    results["all damaged"] = comm.allgather(str(run(name, [*settings, *kept])))
    return results
