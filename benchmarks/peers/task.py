"""The task of the peers as arrays: the network that a case describes, its graph, parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from gcnmpi.core.resident import resident_bytes
from gcnmpi.nn.describe import graph_of, network_of
from gcnmpi.nn.initial import initial
from gcnmpi.nn.state import to_state
from gcnmpi.options.config import Config, from_table
from gcnmpi.options.model import ModelConfig
from partition.errors import UserError
from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import arcs as arcs_of
from partition.graph.graph import training_rows
from partition.graph.store import open_graph

Case = dict[str, Any]
MakeLayer = Callable[[ModelConfig, int, int, bool], torch.nn.Module]
Apply = Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Contestant:
    """Ready to train.

    Attributes
    ----------
    epoch : function
        Trains one, returns its loss.
    versions : dict of str to str
        Library → its version.
    imports : int
        Bytes that were in memory before the graph was read.
    """

    epoch: Callable[[], float]
    versions: dict[str, str]
    imports: int


@dataclass(frozen=True)
class Task:
    """A network on a graph. The arrays are copies: nothing of the graph's files stays mapped.

    Attributes
    ----------
    imports : int
        Bytes that were in memory before the graph was read.
    config : Config
        Of gcnmpi.
    matrix : (n, n) csr_array of float64
        M, with self-loops where the network has them.
    arcs : (2, arcs) tensor of int64
        Their sources and targets, without added self-loops.
    of_arcs : (arcs, d) tensor of float32, or None
        Features of arcs.
    x : (n, d) tensor of float32
        Features.
    classes : int
    labels : (trained,) tensor of int64
    rows : (trained,) tensor of int64, or None
        The vertices that train; None where all do.
    state : dict of tensors of float32
        gcnmpi's initial parameters, by PyTorch Geometric's names and with its shapes.
    """

    imports: int
    config: Config
    matrix: sp.csr_array
    arcs: torch.Tensor
    of_arcs: torch.Tensor | None
    x: torch.Tensor
    classes: int
    labels: torch.Tensor
    rows: torch.Tensor | None
    state: dict[str, torch.Tensor]


def open_task(case: Case, normalize: str = "none") -> Task:
    """Read the graph of a case, and give PyTorch the threads of it.

    Parameters
    ----------
    normalize : str
        As :func:`partition.graph.aggregation.aggregation_matrix` takes it.
    """
    config = from_table(case["config"])
    torch.set_num_threads(config.threads)
    warnings.filterwarnings("ignore", "Sparse")  # CSR tensors are called beta
    _step_once()
    imports = resident_bytes()
    graph = open_graph(case["graph"], check=False).graph
    of_arcs = graph.arc_data.features
    arcs = 0 if of_arcs is None else of_arcs.shape[1]
    network = network_of(config.model, graph.features.shape[1], graph.classes, arcs)
    seed = config.train.seed
    degrees = np.bincount(graph.indices, minlength=graph.n).astype(np.float64)
    mean = lambda of: float(of(degrees).mean())  # noqa: E731
    start = {name: initial(p, seed, mean) for name, p in network.parameters.items()}
    state = to_state(network, start)
    trained = training_rows(graph)
    return Task(
        imports,
        config,
        aggregation_matrix(graph, self_loops=graph_of(config).self_loops, normalize=normalize),
        torch.from_numpy(np.stack([arcs_of(graph), graph.indices]).astype(np.int64)),
        None if of_arcs is None else torch.from_numpy(np.array(of_arcs, np.float32)),
        torch.from_numpy(np.array(graph.features, np.float32)),
        graph.classes,
        torch.from_numpy(np.array(graph.labels[trained], np.int64)),
        None if trained.all() else torch.from_numpy(np.flatnonzero(trained)),
        {name: torch.from_numpy(array.astype(np.float32)) for name, array in state.items()},
    )


class Stack(torch.nn.Module):
    """Layers on top of each other, with ReLU between: the network of the task.

    Parameters
    ----------
    makers : dict of name to function
        ``make(model, d_in, width, last)`` gives a layer of the network of that name.
    apply : function
        ``apply(layer, x)``, its output.

    Raises
    ------
    UserError
        If there is no such network among the makers.
    """

    def __init__(self, task: Task, makers: dict[str, MakeLayer], apply: Apply) -> None:
        super().__init__()
        model = task.config.model
        if model.name not in makers:
            raise UserError(f"it takes part for {', '.join(makers)} only")
        ends = list(pairwise((task.x.shape[1], *model.hidden, task.classes)))
        make, last = makers[model.name], len(ends) - 1
        layers = [make(model, d_in, width, k == last) for k, (d_in, width) in enumerate(ends)]
        self.convs, self.apply_layer = torch.nn.ModuleList(layers), apply

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of all vertices, from the features."""
        for k, layer in enumerate(self.convs):
            x = self.apply_layer(layer, torch.relu(x) if k else x)
        return x


def training(
    task: Task,
    logits_of: Callable[[torch.Tensor], torch.Tensor],
    network: torch.nn.Module,
    **versions: str,
) -> Contestant:
    """With epochs of Adam on the cross-entropy of the training vertices."""
    optimizer = torch.optim.Adam(network.parameters(), lr=task.config.train.lr)
    x, rows, labels = task.x, task.rows, task.labels

    def epoch() -> float:
        optimizer.zero_grad(set_to_none=True)
        logits = logits_of(x)
        loss = torch.nn.functional.cross_entropy(logits if rows is None else logits[rows], labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Contestant(epoch, {"torch": torch.__version__, **versions}, task.imports)


def _step_once() -> None:
    """A step of the smallest network: PyTorch imports a good part of itself only then."""
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 1)).sum().backward()
    optimizer.step()
