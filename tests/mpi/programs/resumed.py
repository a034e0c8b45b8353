"""Under mpirun: propagations that end after some checkpoints, and go on from them.

A case (see cases.py) is the folder of test_propagate.py, whose partitions q and pK have as many
parts as there are ranks. Runs that do not belong to a checkpoint are refused.
"""

import shutil
from pathlib import Path
from unittest import mock

from gcnmpi.propagation.checkpoint import Checkpoints
from gcnmpi.propagation.running import propagate
from gcnmpi.propagation.settings import PropagateRequest
from partition.errors import UserError

# Settings, and the checkpoints that are written before the end.
METHODS = {
    "pagerank": ("tolerance=1e-12", 5),
    "laplacian-eigenvectors": ("count=6 block=2 degree=3", 12),
    "embed, power iterations": ("method=prone dimension=6", 3),
    "embed, filter": ("method=prone dimension=6", 9),
    "embed, randsvd": ("method=randsvd dimension=6", 2),
}


class Interrupted(Exception):
    """Raised to end a run after a checkpoint."""


def of_case(comm, folder: str) -> None:
    folder, said = Path(folder), []
    kept, save = folder / "kept", Checkpoints.save

    def run(name, words, graph="symmetric", partition=f"p{comm.size}", force=False, keeps=True):
        said.clear()
        kept.mkdir(exist_ok=True)  # as the command does, which claims it
        given = [f"checkpoint={kept}", "every=0"] if keeps else []
        asked = PropagateRequest.read(
            None, ["threads=1", *words.split(), *given], method=name.partition(",")[0],
            graph=folder / f"{graph}.graph", partition=partition, force=force,
        )  # fmt: skip
        try:
            return propagate(comm, asked, said.append)
        except UserError as error:
            return str(error)
        finally:
            comm.Barrier()

    def interrupt(name, words, most):
        """Run until so many checkpoints are written."""
        calls = []

        def stop(self, *arguments):
            save(self, *arguments)
            calls.append(1)
            if len(calls) == most:
                raise Interrupted

        if comm.rank == 0:
            shutil.rmtree(kept, ignore_errors=True)
        comm.Barrier()
        with mock.patch.object(Checkpoints, "save", stop):
            try:
                run(name, words)
            except Interrupted:
                return
        raise AssertionError(f"{name} ended before")

    def same(one, other):
        arrays = [[done.values, *done.outcome.arrays.values()] for done in (one, other)]
        return comm.rank > 0 or all(
            a.tobytes() == b.tobytes() for a, b in zip(*arrays, strict=True)
        )

    for name, (words, most) in METHODS.items():
        whole = run(name, words, keeps=False)
        interrupt(name, words, most)
        before = len(list(kept.iterdir()))
        comm.Barrier()
        assert same(whole, run(name, words)), name
        assert before == 2, name  # the newest, and the one before
        assert comm.rank or any(told.startswith("going on from ") for told in said), name

    name, (words, most) = next(iter(METHODS.items()))
    whole = run(name, words, keeps=False)
    interrupt(name, words, most)
    cases = {
        "made with damping 0.85, this run has 0.5": (name, f"{words} damping=0.5", {}),
        "is of pagerank": ("laplacian-eigenvectors", "", {}),
        "made with graph.direction in, this run": (name, f"{words} graph.direction=out", {}),
        "made with dtype float64, this run": (name, f"{words} dtype=float32", {}),
        "is of another graph": (name, words, {"graph": "directed"}),
        "--force to go on with other rounding": (name, f"{words} loading.order=none", {}),
        "made with partition": (name, words, {"partition": "q"}),
    }
    for says, (method, given, where) in cases.items():
        assert says in str(run(method, given, **where)), says
    forced = run(name, f"{words} loading.order=none", force=True)
    assert comm.rank or "differs in rounding" in forced.warnings[-1]
    assert comm.rank or abs(forced.values.sum() - 1) < 1e-9

    # The newest is damaged; then both are. The leftovers of a killed run are removed.
    interrupt(name, words, most)
    if comm.rank == 0:
        with open(kept / "step-000005" / "x.npy", "r+b") as file:
            file.seek(200)
            file.write(b"\x07\x07\x07")
        (kept / ".step-000006.tmp").mkdir()
    comm.Barrier()
    done = run(name, words)
    assert same(whole, done)
    passed = "x.npy was changed; going on from the one before"
    assert comm.rank or any(passed in warning for warning in done.warnings)
    assert not [*kept.glob(".*.tmp")]
    comm.Barrier()
    for path in kept.glob("step-*") if comm.rank == 0 else ():
        (path / "manifest.json").unlink()
    comm.Barrier()
    assert "no readable manifest" in str(run(name, words))
