"""A rank that somebody stops, or asks to end, ends the job: in whatever it and the others are."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from stored_graphs import store
from words import line

from gcnmpi.mpi.watch import EXIT_REQUEUE
from partition.importing.synthetic import sbm

# Signal to rank 1 of 2, before which of its calls, and what the job says of rank 0 then.
STOP, OPENING, HERE = "SIGSTOP", "gcnmpi.run.training.open_problem", "in error: rank 0 on"
CASES = {
    "before MPI starts": (STOP, "gcnmpi.mpi.process.within", (HERE, "in start")),
    "loading": (STOP, OPENING, ("error: rank 0 on", "in gcnmpi.")),
    "in an epoch": (STOP, "gcnmpi.run.trainer.maxima", ("in gcnmpi.mpi.comm.maxima:",)),
    "in MPI's end": (STOP, "gcnmpi.mpi.process.finalize", (HERE, "in finish")),
    "leaving": (STOP, "sys.exit", ()),  # when nobody waits for it but the launcher
    "asked to end": ("SIGTERM", OPENING, ()),
}


@pytest.fixture(scope="module")
def jobs(mpirun, tmp_path_factory):
    """The folder, and the end of each job: all of them run at once, as they mostly wait."""
    folder = tmp_path_factory.mktemp("stopped")
    graph = store(folder / "g.graph", sbm(60, 3, degree=6, features=4, seed=0), 2)

    def run(name):
        number, call, _ = CASES[name]
        own = {"settings": ("comm.timeout=6", "train.epochs=2"), "out": folder / name}
        words = line("train", graph, partition="rp-2", **own)
        return mpirun(2, "broken.py", number, 1, call, *words, code=None, timeout=100)

    with ThreadPoolExecutor(len(CASES)) as pool:
        done = dict(zip(CASES, pool.map(run, CASES), strict=True))
    return folder, done


@pytest.mark.parametrize("name", CASES)
def test_a_rank_that_is_stopped_ends_the_job(jobs, name):
    folder, done = jobs
    assert done[name].returncode not in (0, 2, EXIT_REQUEUE), done[name].stderr
    assert all(words in done[name].stderr for words in CASES[name][2]), done[name].stderr
    record = folder / name / "run.jsonl"
    epochs = record.read_text().count('"event": "epoch"') if record.exists() else 0
    assert epochs == (2 if name in ("in MPI's end", "leaving") else 0)
