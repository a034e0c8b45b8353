"""Every network in PyTorch Geometric's layers, on graphs that are there and on one that is made.

Modules have the names of PyTorch Geometric's, so that ``load_state_dict`` is strict; MeshGraphNet
is the plain PyTorch program of ``benchmarks/peers``, and CompGCN is written from its formula.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from scipy.spatial import Delaunay
from torch.nn import Linear, ModuleDict, ModuleList
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gcnmpi.nn.state import to_state
from gcnmpi.options.config import Config, from_table
from gcnmpi.options.model import UserNetworkOptions
from gcnmpi.proof import oracle
from partition.graph.graph import Graph, arcs, training_rows

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
from peers.mesh_graph_net import MeshGraphNet  # noqa: E402 (found there only)
from typed_layers import CompGcn, Hetero, Hgt, Rgat  # noqa: E402

torch.set_default_dtype(torch.float64)

DATA = Path(os.environ.get("GCNMPI_DATA") or ROOT.parent / "shared" / "data")
GRAPHS = {  # as gcn-partition imports them, with random features of arcs
    "cora": (DATA / "planetoid" / "ind.cora", "--arc-features", "random:3"),
    "cit-HepPh": (
        DATA / "cit-HepPh.mtx.gz", "--arc-features", "random:5", "--features", "random:12",
        "--labels", "random:4", "--split", "random:0.5,0.2,0.3",
    ),
    "mesh": (
        "mesh.npy", "--arc-features", "ways.npy", "--features", "random:6", "--labels", "random:3",
    ),
    "aifb": (DATA / "aifb.npz", "--features", "random:12"),
    "wn18rr": (
        DATA / "wn18rr" / "train.txt.gz", "--columns", "source,relation,target", "--reverse",
        "--features", "random:8", "--labels", "random:4", "--split", "random:0.5,0.2,0.3",
    ),
    "schema": ("synth", "hetero"),
}  # fmt: skip
# Types with features of their own or none; an empty relation, one with a single arc, one of a type.
SCHEMA = (
    "--types", "paper:300:8,author:200:4,venue:20:0,field:9:0", "--relations",
    "author-writes-paper:900,author-reviews-paper:300,paper-cites-paper:700,paper-at-venue:300,"
    "venue-hosts-paper:200,paper-about-field:1,field-within-field:0",
)  # fmt: skip
MESH = 5000  # points
HIDDEN = [16, 16]
ARCS = {"arc_features": True}
CASES: dict[str, dict[str, Any]] = {
    "gcn": {},
    "gcn batch": {"norm": "batch", "residual": "linear", "activation": "elu"},
    "gcn cat": {"norm": "layer", "jk": "cat", "hidden": [16, 12], "activation": "prelu"},
    "gcn max": {"norm": "l2", "jk": "max", "residual": "identity", "activation": "gelu"},
    "gcn around": {"linear_before": True, "linear_after": True, "residual": "identity"},
    "sage": {"norm": "layer", "residual": "linear"},
    "sage l2": {"normalize_output": True, "norm": "batch", "activation": "leaky_relu"},
    "sage sum": {"aggregation": "sum", "norm": "batch", "jk": "sum", "root_weight": False},
    "sage max": {"aggregation": "max", "norm": "layer", "residual": "identity"},
    "gin": {"norm": "batch", "train_eps": True, "eps": 0.2, "residual": "linear"},
    "gin fixed": {"norm": "layer", "eps": -0.3},
    "gat": {"heads": 4, "out_heads": 2, "activation": "elu"},
    "gat batch": {"heads": 4, "norm": "batch", "residual": "linear", "concat": False},
    "gat 1": {"norm": "layer", "residual": "identity", "linear_after": True},
    "gatv2": {"heads": 4, "out_heads": 2, "norm": "batch", "residual": "linear"},
    "gatv2 1": {"norm": "layer", "residual": "identity", "jk": "max"},
    "gcnii": {"hidden": [16], "layers": 8, "norm": "layer", "residual": "identity"},
    "gcnii batch": {"hidden": [16], "layers": 4, "norm": "batch", "alpha": 0.3, "theta": 1.0},
    "appnp": {"norm": "batch", "residual": "identity", "hidden": [16, 16]},
    "sgc": {"hops": 3},
    "sign": {"hidden": [16], "hops": 3, "norm": "layer", "activation": "prelu"},
    "mlp": {"norm": "batch", "residual": "linear"},
    "sage several": {"aggregation": "mean+max", "norm": "batch", "residual": "linear"},
    "gine": {"norm": "batch", "residual": "linear", "train_eps": True, "eps": 0.2},
    "gine cat": {"norm": "layer", "jk": "cat", "activation": "elu"},
    "gat arcs": {**ARCS, "heads": 4, "out_heads": 2, "norm": "batch", "residual": "linear"},
    "gatv2 arcs": {**ARCS, "heads": 4, "norm": "layer", "residual": "identity", "concat": False},
    "transformer arcs": {**ARCS, "heads": 4, "beta": True, "norm": "batch", "residual": "linear"},
    "transformer": {"heads": 2, "out_heads": 3, "concat": False, "norm": "layer"},
    "transformer rootless": {**ARCS, "root_weight": False, "residual": "linear"},
    "gatedgcn arcs": {**ARCS, "norm": "batch", "residual": "linear"},
    "gatedgcn": {"norm": "layer", "residual": "identity", "root_weight": False},
    "pna arcs": {**ARCS, "linear_before": True, "norm": "batch", "residual": "linear"},
    "pna towers": {
        "linear_before": True, "linear_after": True, "towers": 2, "pre_layers": 2, "post_layers": 2,
        "aggregators": "sum+std", "scalers": "linear+inverse_linear", "norm": "layer",
    },
    "pna identity": {**ARCS, "linear_before": True, "scalers": "identity"},
    "mgn": {},
    "mgn mean": {"hidden": [16] * 5, "mlp_layers": 1, "reduction": "mean"},
    "rgcn": {"norm": "batch", "residual": "linear"},
    "rgcn bases": {"bases": 30, "norm": "layer", "root_weight": False},
    "rgcn blocks": {"blocks": 4, "linear_after": True, "residual": "identity"},
    "rgat": {"heads": 4, "out_heads": 2, "norm": "batch", "residual": "linear"},
    "rgat within": {"heads": 2, "bases": 3, "softmax": "relation", "norm": "layer"},
    "rgat blocks": {"heads": 4, "blocks": 4, "concat": False, "linear_after": True},
    "compgcn": {"norm": "batch", "residual": "linear"},
    "compgcn sub": {"composition": "sub", "bases": 3, "norm": "layer", "linear_after": True},
    "compgcn mult": {"residual": "identity", "linear_before": True},
    "hetero": {"norm": "batch", "residual": "linear"},
    "hetero rootless": {"root_weight": False, "norm": "layer"},
    "hetero gat": {"convolution": "gat", "heads": 4, "out_heads": 2, "norm": "layer"},
    "hetero gat means": {"convolution": "gat", "heads": 3, "concat": False, "norm": "batch"},
    "hetero mean": {"relation_reduction": "mean", "norm": "batch", "residual": "linear"},
    "hetero gat mean": {"relation_reduction": "mean", "convolution": "gat", "heads": 4},
    "hetero max": {"aggregation": "max", "norm": "layer", "root_weight": False},
    "hetero several": {"aggregation": "sum+max", "norm": "batch", "residual": "linear"},
    "hetero gatv2": {"convolution": "gatv2", "heads": 4, "out_heads": 2, "norm": "layer"},
    "hgt": {"heads": 4, "norm": "batch", "residual": "linear"},
    "hgt skip": {"heads": 2, "linear_before": True, "norm": "layer"},
}  # fmt: skip
OF_RELATIONS = ("rgcn", "rgat", "compgcn", "hetero", "hgt")


def graphs(scratch: Path) -> Iterator[Path]:
    """Folders, each made when it is asked for; those of published graphs only if there are any."""
    points = np.random.default_rng(0).random((MESH, 3))
    around, neighbours = Delaunay(points).vertex_neighbor_vertices
    ends = np.stack([neighbours, np.repeat(np.arange(MESH), np.diff(around))])
    np.save(scratch / "mesh.npy", ends.astype(np.int64))
    np.save(scratch / "ways.npy", MESH ** (1 / 3) * (points[ends[0]] - points[ends[1]]))
    for name, (source, *words) in GRAPHS.items():
        folder = scratch / f"{name}.graph"
        if source == "synth":
            partition(source, *words, folder, *SCHEMA)
        elif name == "mesh" or DATA.is_dir():
            given = [scratch / word if str(word).endswith(".npy") else word for word in words]
            partition("import", scratch / source, folder, *given)
        else:
            continue
        yield folder


def partition(*words: Any) -> None:
    """Run gcn-partition with these words; raise if it fails."""
    line = [sys.executable, "-m", "partition", *map(str, words)]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)


def problem(folder: Path, graph: Graph, name: str) -> oracle.Problem | None:
    """A case, if it is for graphs with relations as this one, or for those without."""
    network = {"hidden": HIDDEN, "name": name.split()[0]} | CASES[name]
    if network["name"] == "sgc":
        del network["hidden"]
    config = from_table({"dtype": "float64", "model": network})
    fits = name.startswith(OF_RELATIONS) == bool(graph.relations)
    return oracle.Problem(graph, "in", config) if fits else None


def of_oracle(problem: oracle.Problem, weights: oracle.Weights) -> dict[str, Any]:
    """Loss, gradient and the logits of an evaluation with the running moments of one epoch."""
    loss, gradient, moments = problem.gradient(weights, 1)
    return {"loss": loss, "gradient": gradient, "logits": problem.logits(weights | moments)}


def module_of(graph: Graph, problem: oracle.Problem) -> tuple[torch.nn.Module, list[Any]]:
    """The module of PyTorch Geometric's layers, and the types or features of arcs that it takes."""
    model, ends = problem.config.model, (problem.features.shape[1], graph.classes)
    of_arcs = None
    if model.name in ("gine", "mgn") or getattr(model, "arc_features", False):
        of_arcs = torch.tensor(np.asarray(graph.arc_data.features, np.float64))
    if model.name in OF_RELATIONS:
        of_arcs = torch.tensor(np.asarray(graph.arc_type, np.int64))
    if model.name == "mgn":
        return mesh_net(model, (ends[0], graph.arc_data.width, ends[1])), [of_arcs]
    degrees = torch.bincount(torch.tensor(problem.arcs.degrees))
    width = 0 if of_arcs is None or of_arcs.ndim == 1 else of_arcs.shape[1]
    return Net(problem.config, *ends, width, degrees, graph), [of_arcs]


def mesh_net(model: Any, ends: tuple[int, int, int]) -> MeshGraphNet:
    """MeshGraphNet; the widths of vertices, arcs and logits are given."""
    return MeshGraphNet(ends, model.hidden[0], len(model.hidden), model.mlp_layers, model.reduction)


def judge(
    graph: Graph, problem: oracle.Problem, weights: oracle.Weights, module_of: Any = module_of
) -> dict[str, Any]:
    """Loss, gradients by stored name, and logits of an evaluation after one epoch."""
    module, given = module_of(graph, problem)
    state = {n: torch.tensor(a) for n, a in to_state(problem.network, weights).items()}
    counters = {n: v for n, v in module.state_dict().items() if n.endswith("batches_tracked")}
    module.load_state_dict(state | counters)
    given = [torch.tensor(problem.features), edges_of(graph), *given]
    rows = torch.tensor(np.flatnonzero(training_rows(graph)))
    labels = torch.tensor(np.asarray(graph.labels, np.int64))[rows]
    loss = torch.nn.functional.cross_entropy(module.train()(*given)[rows], labels)
    loss.backward()
    with torch.no_grad():
        logits = module.eval()(*given)
    gradient = {n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}
    return {"loss": loss.item(), "gradient": gradient, "logits": logits.numpy()}


def edges_of(graph: Graph) -> torch.Tensor:
    """Sources and targets, (2, arcs)."""
    return torch.tensor(np.stack([arcs(graph), graph.indices]).astype(np.int64))


class Net(torch.nn.Module):
    """The stack of ``gcnmpi.nn.networks.stack`` in PyTorch Geometric's layers."""

    def __init__(
        self,
        config: Config,
        features: int,
        classes: int,
        of_arcs: int,
        degrees: torch.Tensor,
        graph: Graph,
    ) -> None:
        super().__init__()
        self.graph = graph
        self.model = model = UserNetworkOptions(**asdict(config.model))  # which has every key
        self.edges = {"edge_dim": of_arcs or None}
        self.degrees = degrees
        name, hidden, d_in = model.name, list(model.hidden), features
        if name == "sgc":
            self.convs = ModuleList([pyg.SGConv(features, classes, model.hops)])
            return
        after = model.linear_after or model.jk != "none" or name in ("gcnii", "sign")
        if model.linear_before:
            self.lin_in, d_in = Linear(d_in, hidden[0]), hidden[0]
        if name == "gcnii":
            self.lins = ModuleList([Linear(d_in, hidden[0]), Linear(hidden[0], classes)])
            d_in = hidden[0]
        if name == "sign":
            hidden = hidden * (model.hops + 1)
        widths = hidden if after else [*hidden, classes]
        layers, self.residuals = [], ModuleDict()
        for k, width in enumerate(widths):
            last = not after and k == len(widths) - 1
            layers.append(self._layer(k, d_in, width, last))
            if model.residual == "linear":
                self.residuals[str(k)] = Linear(d_in, width)
            d_in = features if name == "sign" else width
        if name in ("mlp", "appnp", "sign"):
            self.lins = ModuleList(layers)
        else:
            self.convs = ModuleList(layers)
        if name == "compgcn":
            count, first = len(graph.relations), hidden[0] if model.linear_before else features
            shapes = {"rel_wt": (count, model.bases), "rel_basis": (model.bases, first)}
            shapes = shapes if model.bases else {"init_rel": (count, first)}
            for parameter, shape in shapes.items():
                self.register_parameter(parameter, torch.nn.Parameter(torch.zeros(shape)))
        self.norms = ModuleList([_norm(model.norm, width) for width in hidden])
        if model.activation == "prelu":
            self.acts = ModuleList([torch.nn.PReLU() for _ in hidden])
        if after and name != "gcnii":
            several = model.jk == "cat" or name == "sign"
            self.lin = Linear(sum(hidden) if several else hidden[-1], classes)
        if name == "appnp":
            self.prop = pyg.APPNP(model.hops or 10, model.alpha)

    def _layer(self, k: int, d_in: int, width: int, last: bool) -> torch.nn.Module:
        model, graph, name = self.model, self.graph, self.model.name
        heads, concat = (model.out_heads, False) if last else (model.heads, model.concat)
        columns = width // heads if concat else width
        root, slope = {"root_weight": model.root_weight}, {"negative_slope": model.negative_slope}
        blocks = {"num_bases": model.bases or None}
        blocks["num_blocks"] = model.blocks if model.blocks > 1 else None
        if name == "gcn":
            return pyg.GCNConv(d_in, width)
        if name == "sage":
            kinds = model.aggregation.split("+")
            kinds = kinds if kinds[1:] else kinds[0]
            return pyg.SAGEConv(d_in, width, kinds, normalize=model.normalize_output, **root)
        if name in ("gin", "gine"):
            norm = {"batch": "batch_norm", "layer": "layer_norm", "none": None}[model.norm]
            options = {"norm_kwargs": {"mode": "node"}} if model.norm == "layer" else {}
            mlp = pyg.MLP([d_in, width, width], act=model.activation, norm=norm, **options)
            kind, edges = (pyg.GINConv, {}) if name == "gin" else (pyg.GINEConv, self.edges)
            return kind(mlp, eps=model.eps, train_eps=model.train_eps, **edges)
        if name in ("gat", "gatv2"):
            kind = {"gat": pyg.GATConv, "gatv2": pyg.GATv2Conv}[name]
            return kind(d_in, columns, heads, concat, **slope, **self.edges)
        if name == "transformer":
            options = {"beta": model.beta, **root, **self.edges}
            return pyg.TransformerConv(d_in, columns, heads, concat, **options)
        if name == "gatedgcn":
            return pyg.ResGatedGraphConv(d_in, width, **root, **self.edges)
        if name == "pna":
            given = model.aggregators.split("+"), model.scalers.split("+"), self.degrees
            names = "towers", "pre_layers", "post_layers"
            options = {name: getattr(model, name) for name in names}
            return pyg.PNAConv(d_in, width, *given, **options, **self.edges)
        if name == "rgcn":
            return pyg.RGCNConv(d_in, width, len(graph.relations), **blocks, **root)
        if name == "rgat":
            within = f"{'within' if model.softmax == 'relation' else 'across'}-relation"
            options = {"heads": heads, "concat": concat, "attention_mechanism": within}
            return Rgat(d_in, columns, len(graph.relations), **options, **blocks, **slope)
        if name in ("hetero", "hgt"):
            return {"hetero": Hetero, "hgt": Hgt}[name](graph, model, d_in, width, last)
        if name == "compgcn":
            layers = len(model.hidden) + (not model.linear_after)
            return CompGcn(graph, model, d_in, width, k == layers - 1)
        if name == "gcnii":
            return pyg.GCN2Conv(width, model.alpha, model.theta, k + 1)
        return Linear(d_in, width)

    def _between(self, x: torch.Tensor, k: int) -> torch.Tensor:
        kind, functional = self.model.activation, torch.nn.functional
        x = self.norms[k](x)
        if kind == "prelu":
            return self.acts[k](x)
        return x if kind == "none" else getattr(functional, kind)(x)

    def forward(
        self, x: torch.Tensor, edges: torch.Tensor, of_arcs: torch.Tensor | None
    ) -> torch.Tensor:
        """Logits of all vertices."""
        model = self.model
        if model.name == "sgc":
            return self.convs[0](x, edges)
        if model.name == "sign":
            return self._sign(x, edges)
        if model.linear_before:
            x = self.lin_in(x)
        if model.name == "gcnii":
            x = first = torch.relu(self.lins[0](x))
        if model.name == "compgcn":
            z = self.rel_wt @ self.rel_basis if model.bases else self.init_rel
        xs = []
        linear = model.name in ("mlp", "appnp")
        layers = self.lins if linear else self.convs
        for k, layer in enumerate(layers):
            arguments = (first, edges) if model.name == "gcnii" else (() if linear else (edges,))
            arguments += () if of_arcs is None else (of_arcs,)
            if model.name == "compgcn":
                y, z = layer(x, *arguments, z), layer.vectors(z) if hasattr(layer, "w_rel") else z
            else:
                y = layer(x, *arguments)
            if model.residual == "linear":
                y = y + self.residuals[str(k)](x)
            elif model.residual == "identity" and x.shape == y.shape:
                y = y + x
            x = self._between(y, k) if k < len(self.norms) else y
            xs.append(x)
        if model.name == "appnp":
            return self.prop(x, edges)
        if model.name == "gcnii":
            return self.lins[1](x)
        if model.jk == "cat":
            x = torch.cat(xs, -1)
        elif model.jk == "sum":
            x = sum(xs)
        elif model.jk == "max":
            x = torch.stack(xs).max(0).values
        return self.lin(x) if hasattr(self, "lin") else x

    def _sign(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        index, weight = gcn_norm(edges, None, len(x), dtype=x.dtype)
        shape = (len(x), len(x))
        matrix = torch.sparse_coo_tensor(index.flip(0), weight, shape, check_invariants=True)
        branches = []
        for k, lin in enumerate(self.lins):
            branches.append(self._between(lin(x), k))
            x = matrix @ x
        return self.lin(torch.cat(branches, -1))


class Rows(torch.nn.Module):
    """Each row divided by its length."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The rows x[i] / ‖x[i]‖."""
        return torch.nn.functional.normalize(x)


def _norm(kind: str, width: int) -> torch.nn.Module:
    if kind == "batch":
        return pyg.BatchNorm(width)
    if kind == "layer":
        return pyg.LayerNorm(width, mode="node")
    return Rows() if kind == "l2" else torch.nn.Identity()
