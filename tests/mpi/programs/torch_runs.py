"""Under mpirun: runs of gcnmpi.torch in folders, as cases say; prints what each came to.

A case is a dict: ``out``, ``graph``, ``parts``, ``epochs``; ``stop``: in which epoch the signal
``sent`` comes; ``kill``: in which one rank 0 is killed; ``raises``, ``hangs``: in which the last
rank raises, or stands still; ``leave``, ``unlogged``: in which one the loop is left, after and
before ``run.log``; ``fetch``: whether rows of other vertices are fetched; ``own``: whether each
rank draws numbers of its own; ``again``: the folder of a second run in the process; ``mistake``: a
name; all else is given to ``g.run``.
Usage: torch_runs.py CASES.json
"""

import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F

import gcnmpi.torch
from partition.errors import UserError


def run(graph, parts, out, exchange="auto", again=None, **case):
    """Train in a folder; and in another one, with the same graph."""
    g = gcnmpi.torch.open(graph, parts, exchange=exchange, dtype=torch.float64)
    for folder in filter(None, (out, again)):
        train(g, folder, **case)


def train(
    g, out, epochs, stop=0, kill=0, raises=0, hangs=0, leave=0, unlogged=0, sent="SIGTERM",
    fetch=False, own=False, mistake="", width=8, **more,
):  # fmt: skip
    """Train in a folder."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    random.seed(g.rank if own else 0)
    others = torch.arange(g.rank, g.n, 7)
    layers = torch.nn.Linear(g.num_features, width), g.batch_norm(width)
    net = torch.nn.ModuleList([*layers, torch.nn.Linear(width, g.num_classes)])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    kept = {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 4)}
    if mistake == "object":
        kept["thing"] = 3
    with g.run(out, net, optimizer, progress=False, **kept, **more) as run:
        if mistake == "outside":
            run.log(1, loss=0.5)
        for epoch in run.epochs(epochs) if mistake != "never" else ():
            if mistake == "nothing":
                continue
            optimizer.zero_grad()
            h = g.dropout(net[1](g.aggregate(net[0](g.x))).relu(), 0.3, epoch, layer=1)
            scores = g.aggregate(net[2](h))
            losses = F.cross_entropy(scores[g.train_mask], g.y[g.train_mask], reduction="none")
            # Of generators, which checkpoints keep
            drawn = g.mean(torch.full((len(g.x),), 0.01 * random.random()))
            loss = g.mean(losses) + 0.01 * torch.rand(1) + drawn
            if fetch:
                loss = loss + 0.01 * g.mean(g.fetch(h, others).square().sum(1))
            loss.backward()
            g.all_reduce_gradients(net)
            optimizer.step()
            if epoch == stop and g.rank == g.size - 1:
                os.kill(os.getpid(), signal.Signals[sent])
            if epoch == raises and g.rank == g.size - 1:
                raise RuntimeError("one rank alone")
            if epoch == hangs and g.rank == g.size - 1:
                time.sleep(600)
            if epoch == unlogged:
                break
            wrong = {"metrics": {"val_accuracy": float(g.rank)}, "name": {"lr": 0.02}}
            found = g.metrics(scores) | wrong.get(mistake, {})
            loss = loss + g.rank * (mistake == "loss")
            if mistake == "one rank" and g.rank:
                continue
            run.log(epoch + (mistake == "epoch"), loss=loss, **found)
            if mistake == "twice":
                run.log(epoch, loss=loss)
            if epoch == kill and g.rank == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            kept["scheduler"].step()
            if epoch == leave:
                break


def main() -> None:
    warnings.simplefilter("ignore")
    for case in json.loads(Path(sys.argv[1]).read_text()):
        told = "done"
        try:
            run(**case)
        except UserError as error:
            told = f"error: {error.message}" if error.agreed else "of one rank"
        except SystemExit as error:
            told = f"exit code {error.code}"
        if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) == "0":
            print(told, flush=True)


if __name__ == "__main__":
    main()
