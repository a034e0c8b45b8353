#!/usr/bin/env python
"""The surrogate of examples/heat_surrogate.py, and the same network trained by plain PyTorch.

    python scripts/compare_surrogate.py --samples 200 --cells 6 --epochs 100 --ranks 2

Both start from the same weights, train on the same solutions with the same learning rates, and
predict the same ones that were not seen. Prints losses and errors, as a line of JSON for each seed.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from peers.mesh_graph_net import MeshGraphNet

import gcnmpi
from gcnmpi.nn.describe import network_of
from gcnmpi.nn.initial import initial
from gcnmpi.nn.schedules import LearningRate
from gcnmpi.nn.state import to_state
from gcnmpi.options.config import from_table
from partition.graph.graph import arcs
from partition.graph.store import open_graph

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from heat_surrogate import SETTINGS, graph_of


def ours(graph, partition, settings, out):
    """The same call on every rank: losses of all epochs, what is predicted in a file."""
    run = gcnmpi.train(graph, partition, config=settings, out=out)
    gcnmpi.infer(graph, run, partition=partition, out=f"{out}.npy")
    return [float(loss) for loss in run.epochs["loss"]]


def theirs(path, settings):
    """Losses of all epochs, and what the network predicts after the last one."""
    graph, config = open_graph(path).graph, from_table(settings)
    model, train = config.model, config.train
    ends = graph.features.shape[1], graph.arc_data.features.shape[1], 1
    made = network_of(model, ends[0], 1, ends[1])
    start = to_state(made, {k: initial(p, train.seed) for k, p in made.parameters.items()})
    network = MeshGraphNet(ends, model.hidden[0], model.layers, model.mlp_layers, model.reduction)
    network.load_state_dict({k: torch.from_numpy(a).float() for k, a in start.items()})
    given = torch.from_numpy(np.stack([arcs(graph), graph.indices]).astype(np.int64))
    x, of_arcs, y = (
        torch.from_numpy(np.array(a, np.float32))
        for a in (graph.features, graph.arc_data.features, graph.targets)
    )
    seen = torch.from_numpy(np.flatnonzero(graph.masks["train"]))
    optimizer, rate = torch.optim.Adam(network.parameters()), LearningRate(train)
    losses = []
    for epoch in range(1, train.epochs + 1):
        optimizer.param_groups[0]["lr"] = rate(epoch)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(network(x, given, of_arcs)[seen], y[seen])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), train.clip_norm)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return losses, network(x, given, of_arcs).numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, value in {"samples": 200, "cells": 6, "epochs": 100, "ranks": 2, "seeds": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    torch.set_num_threads(asked.ranks)
    with tempfile.TemporaryDirectory() as folder:
        graph = graph_of(asked.samples, asked.cells, Path(folder) / "heat.graph")
        part = graph.add_partition("gp", asked.ranks, objective="vol", name="parts").name
        for seed in range(asked.seeds):
            train = SETTINGS["train"] | {"epochs": asked.epochs, "seed": seed}
            settings = SETTINGS | {"train": train}
            told = {"graph": graph, "partition": part, "settings": settings}
            began = time.perf_counter()
            losses = gcnmpi.launch(ours, asked.ranks, told | {"out": f"{folder}/run-{seed}"})
            between = time.perf_counter()
            others, found = theirs(graph.path, settings)
            ended = time.perf_counter()
            pairs = {"ours": np.load(f"{folder}/run-{seed}.npy"), "torch": found}
            unseen, apart = graph.masks["test"], np.abs(np.subtract(losses, others))
            y = graph.targets[unseen]
            error = {k: np.linalg.norm(z[unseen] - y) / np.linalg.norm(y) for k, z in pairs.items()}
            print(json.dumps({
                "seed": seed, "vertices": graph.n, "arcs": graph.nnz,
                **{f"error_{name}": float(value) for name, value in error.items()},
                "loss_ours": losses[-1], "loss_torch": others[-1],
                "first_losses_apart": float((apart / losses)[:10].max()),
                "seconds_ours": between - began, "seconds_torch": ended - between,
            }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
