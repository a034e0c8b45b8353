"""Under mpirun: train many networks.

Cases (see cases.py): {"graph", "partition", "settings"} → {"losses", "traffic": pairs of counted
and predicted numbers} and the counts of mini-batches. Of cases with "outputs" also the "metrics" of
every epoch and the "logits" of all vertices. With "rows_at_once", blocks of vertices are as small.
"""

from unittest import mock

from gcnmpi.nn import slices
from gcnmpi.options.config import load_config
from gcnmpi.run.problem import open_problem
from gcnmpi.run.trainer import train

COUNTED = {"sent": "bytes_sent", "received": "bytes_received", "messages": "messages_sent"}
PREDICTED = {"sent": "bytes", "received": "received", "messages": "messages"}


def of_case(comm, case):
    rows = case.get("rows_at_once", slices.ROWS_AT_ONCE)
    with mock.patch.object(slices, "ROWS_AT_ONCE", rows):
        return record_of(comm, case)


def record_of(comm, case):
    config = load_config(None, case["settings"])
    problem = open_problem(comm, case["graph"], case["partition"], config)
    result = train(problem)
    end = result.end
    traffic = [
        (end[prefix + COUNTED[what]], end[f"{prefix}{PREDICTED[what]}_predicted"])
        for prefix in ("", "eval_")
        for what in COUNTED
    ]
    found = {"losses": [epoch.loss for epoch in result.epochs], "traffic": traffic}
    found |= {key: end[key] for key in end if key.startswith(("batch", "kept"))}
    if "outputs" in case:
        metrics = [epoch.metrics for epoch in result.epochs]
        found |= {"metrics": metrics, "logits": logits_of(problem, result.model)}
    return found


def logits_of(problem, model):
    """Of an evaluation, all rows in the original order, on every rank."""
    logits, width = problem.runtime.kernel.to_host(model.forward()), model.widths[-1]
    mine = problem.scheme.original(model.place, logits, width)
    return [row for rows in problem.runtime.comm.allgather(mine.tolist()) for row in rows]
