"""Every network against PyTorch Geometric's layers: loss, gradients and logits, same weights in.

Usage: python tests/differential/pyg.py [GRAPH …] [--only NETWORK] [--ranks 1,2,4]

Torch and torch_geometric have to be installed; they are no dependency. A graph folder has features
and labels, features of arcs if those of networks are to be read, and a partition for each number of
ranks; without folders, Cora and cit-HepPh of GCNMPI_DATA or ``../shared/data`` are imported, and a
mesh is made. Compared is the program on so many ranks, or the oracle in place of 0. The modules
here are written with PyTorch Geometric's layers and have their names, so that ``load_state_dict``
is strict; MeshGraphNet is the plain PyTorch program of ``scripts/peers``, and CompGCN is written
from its formula. Float64; the exit code is
1 if anything is further apart than 1e-10, relative to the largest entry of its array.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

try:
    import torch
    import torch_geometric.nn as pyg
    from torch.nn import Linear, ModuleDict, ModuleList
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
except ImportError as error:
    sys.exit(print(f"skipped: {error}"))

from gcnmpi.mpi.launch import local_launcher
from gcnmpi.nn.state import to_state
from gcnmpi.options.config import Config, from_table
from gcnmpi.options.model import OwnOptions
from gcnmpi.proof import oracle
from partition.graph.examples import training_rows
from partition.graph.graph import Graph, arcs
from partition.graph.store import open_graph

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
from peers.mesh_graph_net import MeshGraphNet  # noqa: E402 (found there only)
from typed_layers import CompGcn, Hetero, Hgt, Rgat  # noqa: E402

DATA = Path(os.environ.get("GCNMPI_DATA") or ROOT.parent / "shared" / "data")
GRAPHS = {  # as gcn-partition imports them, with random features of arcs
    "cora": (DATA / "planetoid" / "ind.cora", "--arc-features", "random:3"),
    "cit-HepPh": (
        DATA / "cit-HepPh.mtx.gz", "--arc-features", "random:5", "--features", "random:12",
        "--labels", "random:4", "--split", "random:0.5,0.2,0.3",
    ),
    "mesh": ("mesh.npy", "--arc-features", "ways.npy", "--features", "random:6", "--labels",
             "random:3"),
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
TOLERANCE = 1e-10
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
    "compgcn corr": {"composition": "corr", "residual": "identity", "linear_before": True},
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


# A module, and what it takes beside features and edges.
ModuleOf = Callable[[Graph, oracle.Problem], tuple[torch.nn.Module, list[torch.Tensor]]]
OF_RELATIONS = ("rgcn", "rgat", "compgcn", "hetero", "hgt")


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--only", multiple=True, default=[""], help="Cases whose name begins so.")
@click.option("--ranks", default="1,2,4", help="0: the oracle.")
def main(folders: tuple[Path, ...], only: tuple[str, ...], ranks: str) -> None:
    """Compare all cases on each graph."""
    if not folders and not DATA.is_dir():
        sys.exit(print(f"skipped: there is no {DATA}"))
    counts, names = [*map(int, ranks.split(","))], [n for n in CASES if n.startswith(only)]
    torch.set_default_dtype(torch.float64)
    with tempfile.TemporaryDirectory() as scratch:
        configs = {name: config_of(name) for name in names}
        found = [
            compared(folder, configs, counts, module_of)
            for folder in folders or (made(Path(scratch), name, counts) for name in GRAPHS)
        ]
    sys.exit(0 if all(found) else 1)


def made(scratch: Path, name: str, counts: list[int]) -> Path:
    """A graph folder with partitions."""

    def partition(*words: Any) -> None:
        line = [sys.executable, "-m", "partition", *map(str, words)]
        subprocess.run(line, check=True, cwd=scratch, stdout=subprocess.DEVNULL)

    if name == "mesh":
        from scipy.spatial import Delaunay

        points = np.random.default_rng(0).random((MESH, 3))
        around, neighbours = Delaunay(points).vertex_neighbor_vertices
        ends = np.stack([neighbours, np.repeat(np.arange(MESH), np.diff(around))])
        np.save(scratch / "mesh.npy", ends.astype(np.int64))
        np.save(scratch / "ways.npy", MESH ** (1 / 3) * (points[ends[0]] - points[ends[1]]))
    source, *words = GRAPHS[name]
    folder = scratch / f"{name}.graph"
    if source == "synth":
        partition(source, *words, folder, *SCHEMA)
    else:
        partition("import", source, folder, *words)
    for count in counts:
        if count > 1:
            partition("add", folder, "--model", "rp", "-k", count)
    return folder


def compared(
    folder: Path, configs: dict[str, Config], counts: list[int], module_of: ModuleOf
) -> bool:
    """Whether all of these cases agree on a graph; a line for each says how far they are apart."""
    graph = open_graph(folder).graph
    problems = {
        name: oracle.Problem(graph, "in", config)
        for name, config in configs.items()
        if name.startswith(OF_RELATIONS) == bool(graph.relations)
    }
    weights = {name: weights_of(problem) for name, problem in problems.items()}
    found = {count: results_of(count, folder, problems, weights) for count in counts}
    agree = True
    for name, problem in problems.items():
        expected, told = judge(graph, problem, weights[name], module_of), ""
        for count in counts:
            worst, where = max(compare(problem, found[count][name], expected))
            agree &= worst <= TOLERANCE
            told += f"  {count}: {worst:.1e} ({where})"
        click.echo(f"{folder.stem} {name:20}{told}")
    return agree


def results_of(
    count: int,
    folder: Path,
    problems: dict[str, oracle.Problem],
    weights: dict[str, oracle.Weights],
) -> dict[str, dict[str, Any]]:
    """The results of the program on so many ranks, or of the oracle."""
    if count:
        return of_engine(count, folder, {n: p.config for n, p in problems.items()}, weights)
    return {name: of_oracle(problem, weights[name]) for name, problem in problems.items()}


def config_of(name: str) -> Config:
    """The configuration of a case."""
    network = {"hidden": HIDDEN, "name": name.split()[0]} | CASES[name]
    if network["name"] == "sgc":
        del network["hidden"]
    return from_table({"dtype": "float64", "model": network})


def weights_of(problem: oracle.Problem) -> oracle.Weights:
    """Initial parameters, away from 0, where biases and slopes begin."""
    random, weights = np.random.default_rng(7), problem.initial()
    for name, p in problem.network.parameters.items():
        if p.trained:
            weights[name] = weights[name] + 0.05 * random.standard_normal(p.shape)
    return weights


def of_oracle(problem: oracle.Problem, weights: oracle.Weights) -> dict[str, Any]:
    """Loss, gradient and the logits of an evaluation with the running moments of one epoch."""
    loss, gradient, moments = problem.gradient(weights, 1)
    return {"loss": loss, "gradient": gradient, "logits": problem.logits(weights | moments)}


def of_engine(
    ranks: int, graph: Path, cases: dict[str, Config], weights: dict[str, oracle.Weights]
) -> dict[str, dict[str, Any]]:
    """The same of the distributed program, all cases in one launch."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: Path(scratch) / name.replace(" ", "-") for name in cases}
        for name, folder in folders.items():
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(asdict(cases[name])))
            np.savez(folder / "weights.npz", **weights[name])
        program = Path(__file__).with_name("engine.py")
        words = [*local_launcher(), "-n", ranks, sys.executable, program, graph]
        words += folders.values()
        subprocess.run(list(map(str, words)), check=True)
        found = {}
        for name, folder in folders.items():
            with np.load(folder / "results.npz") as arrays:
                gradient = {n[9:]: arrays[n] for n in arrays if n.startswith("gradient ")}
                found[name] = {
                    "loss": arrays["loss"], "logits": arrays["logits"], "gradient": gradient
                }  # fmt: skip
        return found


def compare(
    problem: oracle.Problem, found: dict[str, Any], expected: dict[str, Any]
) -> Iterator[tuple[float, str]]:
    """How far each result is from PyTorch Geometric's."""
    yield distance(found["loss"], expected["loss"]), "loss"
    zeros = {name: np.zeros(p.shape) for name, p in problem.network.parameters.items()}
    stored = to_state(problem.network, zeros | found["gradient"])
    floor = max(np.abs(array).max() for array in expected["gradient"].values())
    for name, array in expected["gradient"].items():
        # A bias before a batch norm has no gradient but for rounding errors.
        yield distance(stored[name], array, 1e-3 * floor), f"gradient of {name}"
    yield distance(found["logits"], expected["logits"]), "logits"


def distance(found: Any, expected: Any, floor: float = 0.0) -> float:
    """Largest difference relative to the largest entry."""
    size = max(float(np.abs(expected).max()), floor)
    return float(np.abs(np.asarray(found) - expected).max()) / (size or 1.0)


def module_of(graph: Graph, problem: oracle.Problem) -> tuple[torch.nn.Module, list[Any]]:
    """The module of PyTorch Geometric's layers, and the types or features of arcs that it takes."""
    model, ends = problem.config.model, (problem.features.shape[1], graph.classes)
    of_arcs = None
    if model.name in ("gine", "mgn") or getattr(model, "arc_features", False):
        of_arcs = torch.tensor(np.asarray(graph.arc_data.features, np.float64))
    if model.name in OF_RELATIONS:
        of_arcs = torch.tensor(np.asarray(graph.arc_type, np.int64))
    if model.name == "mgn":
        blocks = model.hidden[0], len(model.hidden), model.mlp_layers, model.reduction
        return MeshGraphNet((ends[0], graph.arc_data.width, ends[1]), *blocks), [of_arcs]
    degrees = torch.bincount(torch.tensor(problem.arcs.degrees))
    width = 0 if of_arcs is None or of_arcs.ndim == 1 else of_arcs.shape[1]
    return Net(problem.config, *ends, width, degrees, graph), [of_arcs]


def judge(
    graph: Graph, problem: oracle.Problem, weights: oracle.Weights, module_of: ModuleOf
) -> dict[str, Any]:
    """Loss, gradients by stored name, and logits of an evaluation after one epoch."""
    module, given = module_of(graph, problem)
    state = {n: torch.tensor(a) for n, a in to_state(problem.network, weights).items()}
    counters = {n: v for n, v in module.state_dict().items() if n.endswith("batches_tracked")}
    module.load_state_dict(state | counters)
    x = torch.tensor(problem.features)
    edges = torch.tensor(np.stack([arcs(graph), graph.indices]).astype(np.int64))
    rows = torch.tensor(np.flatnonzero(training_rows(graph)))
    labels = torch.tensor(np.asarray(graph.labels, np.int64))[rows]
    module.train()
    loss = torch.nn.functional.cross_entropy(module(x, edges, *given)[rows], labels)
    loss.backward()
    module.eval()
    with torch.no_grad():
        logits = module(x, edges, *given)
    gradient = {n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}
    return {"loss": loss.item(), "gradient": gradient, "logits": logits.numpy()}


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
        self.model = model = OwnOptions(**asdict(config.model))  # which has every key
        self.options = {"edge_dim": of_arcs or None}
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
        model = self.model
        if model.name == "gcn":
            return pyg.GCNConv(d_in, width)
        if model.name == "sage":
            options = {"root_weight": model.root_weight, "normalize": model.normalize_output}
            kinds = model.aggregation.split("+")
            return pyg.SAGEConv(d_in, width, kinds if kinds[1:] else kinds[0], **options)
        if model.name in ("gin", "gine"):
            names = {"batch": "batch_norm", "layer": "layer_norm", "none": None}
            options = {"norm_kwargs": {"mode": "node"}} if model.norm == "layer" else {}
            mlp = pyg.MLP(
                [d_in, width, width], act=model.activation, norm=names[model.norm], **options
            )
            if model.name == "gin":
                return pyg.GINConv(mlp, eps=model.eps, train_eps=model.train_eps)
            return pyg.GINEConv(mlp, eps=model.eps, train_eps=model.train_eps, **self.options)
        if model.name in ("gat", "gatv2", "transformer"):
            heads, concat = (model.out_heads, False) if last else (model.heads, model.concat)
            given = d_in, width // heads if concat else width, heads, concat
            if model.name == "transformer":
                options = {"beta": model.beta, "root_weight": model.root_weight}
                return pyg.TransformerConv(*given, **options, **self.options)
            kind = {"gat": pyg.GATConv, "gatv2": pyg.GATv2Conv}[model.name]
            return kind(*given, negative_slope=model.negative_slope, **self.options)
        if model.name == "gatedgcn":
            options = {"root_weight": model.root_weight}
            return pyg.ResGatedGraphConv(d_in, width, **options, **self.options)
        if model.name == "pna":
            given = model.aggregators.split("+"), model.scalers.split("+"), self.degrees
            names = "towers", "pre_layers", "post_layers"
            options = {name: getattr(model, name) for name in names}
            return pyg.PNAConv(d_in, width, *given, **options, **self.options)
        if model.name == "rgcn":
            options = {"num_bases": model.bases or None, "root_weight": model.root_weight}
            blocks = model.blocks if model.blocks > 1 else None
            return pyg.RGCNConv(
                d_in, width, len(self.graph.relations), num_blocks=blocks, **options
            )
        if model.name == "rgat":
            heads, concat = (model.out_heads, False) if last else (model.heads, model.concat)
            columns = width // heads if concat else width
            within = f"{'within' if model.softmax == 'relation' else 'across'}-relation"
            options = {"num_bases": model.bases or None, "attention_mechanism": within}
            options["num_blocks"] = model.blocks if model.blocks > 1 else None
            options |= {"heads": heads, "concat": concat, "negative_slope": model.negative_slope}
            return Rgat(d_in, columns, len(self.graph.relations), **options)
        if model.name in ("hetero", "hgt"):
            kind = {"hetero": Hetero, "hgt": Hgt}[model.name]
            return kind(self.graph, model, d_in, width, last)
        if model.name == "compgcn":
            layers = len(model.hidden) + (not model.linear_after)
            return CompGcn(self.graph, model, d_in, width, k == layers - 1)
        if model.name == "gcnii":
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


if __name__ == "__main__":
    main()
