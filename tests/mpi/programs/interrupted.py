"""Under mpirun: an epoch of mini-batches that is interrupted goes on as if it had not been.

The run that it is compared with draws no batch ahead.

A case (see cases.py) is a graph, a partition or null, a folder, ``train.batches``, settings of a
scheme, and those of others, on which an epoch that was interrupted on the first one goes on, with
the same curve to rounding.
"""

from pathlib import Path

import numpy as np

from gcnmpi.options.config import load_config
from gcnmpi.run.problem import open_problem
from gcnmpi.run.trainer import train
from partition.records import read_records

SETTINGS = (
    "dtype=float64", "train.epochs=3", "model.hidden=5", "model.dropout=0.4", "model.norm=batch",
    "train.lr=0.02",
)  # fmt: skip


def of_case(comm, case: list) -> None:
    graph, partition, folder, batches, first, *others = case

    def run(name, ahead="yes", after=None, scheme=first):
        """Train; with ``after``, the last rank asks for an end after so many batches."""
        drawn = f"train.batches={batches}", f"train.draw_ahead={ahead}"
        config = load_config(None, (*SETTINGS, *drawn, *scheme))
        asked = 0

        def stop():
            nonlocal asked
            asked += comm.rank == comm.size - 1
            # Once it is asked before the first epoch.
            return 10 if after is not None and asked > after + 1 else 0

        problem = open_problem(comm, graph, partition, config)
        return train(problem, Path(folder, name), resume="auto", stop=stop)

    whole = run("whole", ahead="no")
    losses = [epoch.loss for epoch in whole.epochs]
    for after, epochs, number in ((1, 0, 2), (7, 1, 2)):
        name = f"cut-{after}"
        begun = run(name, after=after)
        assert begun.stopped, begun.end
        assert len(begun.epochs) == epochs, begun.end
        kept = sorted(path.name for path in Path(folder, name, "checkpoints").iterdir())
        assert kept[-1] == f"epoch-{epochs:06d}+{number:06d}", kept
        again = run(name)
        assert not again.stopped
        assert [epoch.loss for epoch in again.epochs] == losses, (again.epochs, losses)
        flats = whole.model.parameters.flat, again.model.parameters.flat
        np.testing.assert_array_equal(*flats)
        events = [record["event"] for record in read_records(Path(folder, name, "run.jsonl"))]
        assert events.count("epoch") == 3, events
        assert ("stop" in events, events[-1]) == (True, "end"), events
    for number, other in enumerate(others):
        name = f"other-{number}"
        assert run(name, after=7).stopped
        again = run(name, scheme=other)
        found = [epoch.loss for epoch in again.epochs]
        np.testing.assert_allclose(found, losses, rtol=1e-10)
