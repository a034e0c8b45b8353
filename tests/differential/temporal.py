"""Networks over time in PyTorch Geometric Temporal's layers, and rollouts in a loop.

The graphs are made: an undirected one with weights for Chebyshev convolutions, a directed one for
all others. The modules of PyTorch Geometric Temporal are loaded one by one, as the package as a
whole asks for more than they do. In its DCRNN, the diffusion is that of the paper, and in its
STConv the norm that of this program. Networks are those of ``over_time.py``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import layers
import numpy as np
import torch
import torch_geometric.nn as pyg
from layers import Net, mesh_net, of_oracle  # noqa: F401 (of this part, too)
from torch import Tensor
from torch.nn import Linear, Module, ModuleList

from gcnmpi.options.config import Config, from_table
from gcnmpi.options.frames import Frames
from gcnmpi.proof import oracle
from partition.graph.graph import ArcData, Graph
from partition.graph.store import write_graph

FILE = Path(__file__).parents[1] / "over_time.py"
N, FEATURES, CLASSES = 300, 6, 3
CASES: dict[str, dict[str, Any]] = {
    "frames_gru": {"hidden": [8], "filter_size": 3},
    "frames_stgcn": {"hidden": [8], "filter_size": 3, "kernel_size": 2, "norm": "batch"},
    "frames_dcrnn": {"hidden": [8], "filter_size": 3},
    "rolled_dcrnn": {"hidden": [8]},
    "rolled_gcn": {"hidden": [8, 5], "norm": "batch", "residual": "linear"},
    "rolled_given": {"hidden": [8]},
    "rolled_mgn": {"hidden": [8, 8]},
}
UNDIRECTED = ("frames_gru", "frames_stgcn")


def temporal(name: str) -> ModuleType:
    """A module of PyTorch Geometric Temporal, without its package."""
    package = importlib.util.find_spec("torch_geometric_temporal")
    path = Path(package.submodule_search_locations[0], "nn", f"{name}.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def graphs(scratch: Path) -> Iterator[Path]:
    """Graphs with weights; no vertex is its own neighbour."""
    if importlib.util.find_spec("torch_geometric_temporal") is None:
        return print("skipped: there is no torch_geometric_temporal")
    random = np.random.default_rng(3)
    for kind in ("undirected", "directed"):
        weights = np.triu(random.random((N, N)) < 0.03, 1) * random.uniform(0.5, 2, (N, N))
        other = (random.random((N, N)) < 0.01) * (1 - np.eye(N))
        weights += weights.T if kind == "undirected" else other
        weights[-3:] = weights[:, -3:] = 0
        source, target = np.nonzero(weights)
        graph = Graph(
            np.searchsorted(source, np.arange(N + 1)),
            target.astype(np.int32),
            weights=weights[source, target],
            features=random.standard_normal((N, FEATURES)).astype(np.float32),
            labels=random.integers(0, CLASSES, N).astype(np.int32),
            masks={"train": random.random(N) < 0.6},
            arc_data=ArcData(random.standard_normal((len(source), 2)).astype(np.float32)),
        )
        write_graph(scratch / f"{kind}.graph", graph, source={"generator": kind})
        yield scratch / f"{kind}.graph"


def problem(folder: Path, graph: Graph, name: str) -> oracle.Problem | None:
    """A case, on the graph that it is for."""
    table = {"dtype": "float64", "model": {"name": f"{FILE}:{name}"} | CASES[name]}
    fits = (name in UNDIRECTED) == (folder.stem == "undirected")
    return oracle.Problem(graph, "in", from_table(table)) if fits else None


def judge(graph: Graph, problem: oracle.Problem, weights: oracle.Weights) -> dict[str, Any]:
    """Loss, gradients and logits, by the module of a case."""
    return layers.judge(graph, problem, weights, module_of)


def module_of(graph: Graph, problem: oracle.Problem) -> tuple[Module, list[Tensor]]:
    """The module of a case, and the weights and features of arcs, which it takes."""
    name = problem.config.model.name.split(":")[-1]
    module = MODULES[name](graph, problem.config, FRAMES[name])
    of_arcs = graph.weights, graph.arc_data.features
    return module, [torch.tensor(np.asarray(array, np.float64)) for array in of_arcs]


def frames_of(x: Tensor, frames: Frames) -> list[Tensor]:
    """The frames, each behind the static columns."""
    static, width = x[:, : frames.static], frames.columns
    starts = [frames.static + time * width for time in range(frames.history)]
    return [torch.cat([static, x[:, first : first + width]], 1) for first in starts]


class Recurrent(Module):
    """A cell over all frames, as the examples of PyTorch Geometric Temporal have it."""

    def __init__(self, cell: Module, frames: Frames, outputs: int) -> None:
        super().__init__()
        self.frames, self.recurrent = frames, cell
        self.linear = Linear(cell.out_channels, outputs)

    def forward(self, x: Tensor, edges: Tensor, weight: Tensor, of_arcs: Tensor) -> Tensor:
        """The predicted frames side by side, of all vertices."""
        h = None
        for frame in frames_of(x, self.frames):
            h = self.recurrent(frame, edges, weight, h)
        return self.linear(torch.relu(h))


class Diffusion(Module):
    """Equation 2 of Li et al. 2018, with the arrays of ``DConv``."""

    def __init__(self, d_in: int, width: int, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2, size, d_in, width))
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
        """The diffusion out of each vertex and into it."""
        w = torch.zeros(len(x), len(x)).index_put(tuple(edges), weight)
        y = self.bias
        for way, theta in ((w, self.weight[0]), (w.T, self.weight[1])):
            sums = way.sum(1, keepdim=True)
            walk, term = torch.where(sums == 0, 0, way / sums.where(sums != 0, 1)), x
            for each in theta:
                y, term = y + term @ each, walk @ term
        return y


class Stgcn(Module):
    """Blocks of ``STConv``, a ``TemporalConv`` over what is left, and a linear layer."""

    def __init__(self, frames: Frames, outputs: int, model: Any) -> None:
        super().__init__()
        self.frames, found = frames, temporal("attention/stgcn")
        d_in, left, blocks = frames.static + frames.columns, frames.history, []
        for width in model.hidden:
            block = found.STConv(N, d_in, width, width, model.kernel_size, model.filter_size)
            block._batch_norm = torch.nn.Identity()
            blocks.append(block)
            d_in, left = width, left - 2 * (model.kernel_size - 1)
        self.blocks = ModuleList(blocks)
        self.norms = ModuleList([pyg.BatchNorm(width) for width in model.hidden])
        self.output = found.TemporalConv(d_in, d_in, left)
        self.linear = Linear(d_in, outputs)

    def forward(self, x: Tensor, edges: Tensor, weight: Tensor, of_arcs: Tensor) -> Tensor:
        """The predicted frames side by side, of all vertices."""
        y = torch.stack(frames_of(x, self.frames))[None]
        for block, norm in zip(self.blocks, self.norms, strict=True):
            y = torch.stack([norm(frame) for frame in block(y, edges, weight)[0]])[None]
        return self.linear(self.output(y)[0, 0])


class Rolled(Module):
    """A network of one step in a loop; ``call(network, x, edges, weight, of_arcs)``."""

    def __init__(self, network: Module, frames: Frames, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.network, self.frames, self.call = network, frames, call
        for name in ("state_dict", "load_state_dict", "named_parameters"):  # by its names
            setattr(self, name, getattr(network, name))

    def forward(self, x: Tensor, *graph: Tensor) -> Tensor:
        """Each step reads the last frames, predicted ones among them."""
        frames, found = self.frames, []
        read = frames.static + frames.history * frames.columns
        static = x[:, : frames.static]
        window = list(x[:, frames.static : read].split(frames.columns, 1))
        given = x[:, read:].split(frames.given, 1) if frames.given else []
        for step in range(frames.rollout):
            y = self.call(self.network, torch.cat([static, *window], 1), *graph)
            if frames.difference:
                y = y + window[-1][:, : frames.predicted]
            found.append(y)
            y = y.detach() if frames.rollout_gradient == "last" else y
            beside = [given[step]] if step < len(given) else []
            window = [*window[1:], torch.cat([y, *beside], 1)]
        return torch.cat(found, 1)


def _called(network: Module, *given: Tensor) -> Tensor:
    return network(*given)


def _gru(graph: Graph, config: Config, frames: Frames) -> Module:
    width, size = config.model.hidden[0], config.model.filter_size
    cell = temporal("recurrent/gconv_gru").GConvGRU(frames.static + frames.columns, width, size)
    return Recurrent(cell, frames, CLASSES)


def _stgcn(graph: Graph, config: Config, frames: Frames) -> Module:
    return Stgcn(frames, CLASSES, config.model)


def _dcrnn(graph: Graph, config: Config, frames: Frames) -> Module:
    step = frames.step if frames.rollout > 1 else frames
    d_in, width, size = step.static + step.columns, config.model.hidden[0], config.model.filter_size
    cell = temporal("recurrent/dcrnn").DCRNN(d_in, width, size)
    for gate in "zrh":
        setattr(cell, f"conv_x_{gate}", Diffusion(d_in + width, width, size))
    whole = frames if frames.rollout > 1 else replace(frames, horizon=1, rollout=1)
    return Rolled(Recurrent(cell, step, step.horizon * step.predicted), whole, _called)


def _gcn(graph: Graph, config: Config, frames: Frames) -> Module:
    model = from_table({"model": {"name": "gcn"} | CASES[config.model.name.split(":")[-1]]})
    step = frames.step
    network = Net(model, step.features, step.outputs, 0, torch.zeros(1), graph)

    def call(network: Net, x: Tensor, edges: Tensor, weight: Tensor, of_arcs: Tensor) -> Tensor:
        y = x
        for k, conv in enumerate(network.convs):
            z = conv(y, edges, weight)
            z = z + network.residuals[str(k)](y) if str(k) in network.residuals else z
            y = network._between(z, k) if k < len(network.norms) else z
        return y

    return Rolled(network, frames, call)


def _mgn(graph: Graph, config: Config, frames: Frames) -> Module:
    network = mesh_net(config.model, (frames.step.features, graph.arc_data.width, 1))
    return Rolled(network, frames, lambda net, x, e, _, arcs: net(x, e, arcs))


MODULES: dict[str, Callable[[Graph, Config, Frames], Module]] = {
    "frames_gru": _gru, "frames_stgcn": _stgcn, "frames_dcrnn": _dcrnn, "rolled_dcrnn": _dcrnn,
    "rolled_gcn": _gcn, "rolled_given": _gcn, "rolled_mgn": _mgn,
}  # fmt: skip
GIVEN = CLASSES - 1
FRAMES = {
    "frames_gru": Frames(FEATURES - 2, 1, 1, 2, CLASSES),
    "frames_stgcn": Frames(FEATURES - 4, 1, 1, 4, CLASSES),
    "frames_dcrnn": Frames(FEATURES - 2, 1, 1, 2, CLASSES, difference=True),
    "rolled_dcrnn": Frames(FEATURES - 2, 1, 1, 2, rollout=CLASSES),
    "rolled_gcn": Frames(FEATURES - 2, 1, 1, 2, rollout=CLASSES),
    "rolled_given": Frames(FEATURES - 2 - GIVEN, 2, 1, rollout=CLASSES, rollout_gradient="last"),
    "rolled_mgn": Frames(FEATURES - 1, 1, 1, rollout=CLASSES, difference=True),
}
