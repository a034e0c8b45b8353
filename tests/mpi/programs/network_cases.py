"""Under mpirun: train many networks in one launch.

Usage: network_cases.py CASES.json OUT.json

CASES.json holds {"graph", "cases": list of {"name", "partition", "settings"}}, where a case may
have a "graph" of its own; OUT.json gets for each name {"error", "losses", "traffic": pairs of what
was counted and predicted} and what was counted of mini-batches. Of cases with "outputs" also the
"metrics" of every epoch and the "logits" of all vertices.
"""

import json
import sys
from pathlib import Path

from gcnmpi.mpi.process import run
from gcnmpi.options.config import load_config
from gcnmpi.run.problem import open_problem
from gcnmpi.run.trainer import train
from partition.errors import UserError

COUNTED = {"sent": "bytes_sent", "received": "bytes_received", "messages": "messages_sent"}
PREDICTED = {"sent": "bytes", "received": "received", "messages": "messages"}


def main(comm):
    wanted = json.loads(Path(sys.argv[1]).read_text())
    found = {}
    for case in wanted["cases"]:
        try:
            config = load_config(None, case["settings"])
            graph = case.get("graph") or wanted["graph"]
            problem = open_problem(comm, graph, case["partition"], config)
            result = train(problem)
        except UserError as error:
            found[case["name"]] = {"error": error.message}
            continue
        end = result.end
        traffic = [
            (end[prefix + COUNTED[what]], end[f"{prefix}{PREDICTED[what]}_predicted"])
            for prefix in ("", "eval_")
            for what in COUNTED
        ]
        losses = [epoch.loss for epoch in result.epochs]
        found[case["name"]] = {"error": None, "losses": losses, "traffic": traffic}
        found[case["name"]] |= {key: end[key] for key in end if key.startswith(("batch", "kept"))}
        if case.get("outputs"):
            metrics = [epoch.metrics for epoch in result.epochs]
            found[case["name"]] |= {"metrics": metrics, "logits": logits_of(problem, result.model)}
    if comm.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(found))
    return 0


def logits_of(problem, model):
    """Of an evaluation, all rows in the original order, on every rank."""
    logits, width = problem.runtime.kernel.to_host(model.forward()), model.widths[-1]
    mine = problem.scheme.original(model.place, logits, width)
    return [row for rows in problem.runtime.comm.allgather(mine.tolist()) for row in rows]


run(main)
