"""Link prediction in PyTorch: every decoder with every objective, on a GCN's rows.

Decoders and losses are written from their formulas, and PyTorch's autograd gives the gradients.
Which pairs and negatives a step has is read from :mod:`gcnmpi.nn.tasks.drawing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from layers import Net, edges_of, partition
from torch.nn.functional import softplus

from gcnmpi.nn.decoders import symmetric
from gcnmpi.nn.state import to_state
from gcnmpi.nn.tasks.drawing import Drawn
from gcnmpi.options.config import from_table
from gcnmpi.options.task import OF_RELATIONS, LinkOptions, tells_relations
from gcnmpi.proof import oracle
from gcnmpi.proof.links import LinkProblem
from partition.graph.graph import Graph
from partition.graph.vertex_pairs import identified, read_pairs, write_pairs

DECODERS: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("dot", "distmult", "hadamard", "concat")},
    "hadamard hidden": {"decoder_hidden": [7], "decoder_activation": "elu"},
    "concat hidden": {"decoder_hidden": [7, 5]},
}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "bce": {"negatives": "uniform,3"},
    "softmax": {"negatives": "pool,11"},
    "auc": {"negatives": "uniform,2"},
}
CASES = {
    f"{decoder}, {objective}": {
        "name": "links", "decoder": decoder.split()[0], **of_decoder, "objective": objective, **rest
    }
    for (decoder, of_decoder), (objective, rest) in product(DECODERS.items(), OBJECTIVES.items())
}  # fmt: skip
CASES["hadamard hidden, filtered"] = CASES["hadamard hidden, softmax"] | {"filter": True}
CASES["concat, batch"] = CASES["concat, bce"] | {"batch": 100}
CASES |= {
    f"{decoder} of relations, {objective}": {
        **CASES["dot, softmax"], "decoder": decoder, "objective": objective, "pairs": "triples",
        "negatives": "corrupt,3", "filter": True,
    }
    for decoder, objective in product(OF_RELATIONS, OBJECTIVES)
}  # fmt: skip
CASES["transe of relations, Euclidean"] = CASES["transe of relations, bce"] | {"decoder_p": 2}
RELATIONS = 4  # of the pairs that have some


def graphs(scratch: Path) -> Iterator[Path]:
    """A graph with pairs, to which relations are given."""
    folder, random = scratch / "small.graph", np.random.default_rng(0)
    partition("synth", "sbm", folder, "--vertices", 200, "--classes", 3, "--features", 9)
    partition("pairs", folder, "--split", "0.8,0.1,0.1", "--negatives", 1)
    pairs = read_pairs(folder, "links")
    relations = {m: random.integers(0, RELATIONS, len(of)) for m, of in pairs.positives.items()}
    triples = {"name": "triples", "negatives": {}, "relations": relations, "directed": True}
    write_pairs(folder, identified(replace(pairs, **triples)))
    yield folder


def problem(folder: Path, graph: Graph, name: str) -> LinkProblem:
    """The problem of a case, with the pairs of the folder."""
    table = {"dtype": "float64", "model": {"hidden": [8, 6]}, "task": CASES[name]}
    config = from_table(table)
    return LinkProblem(graph, read_pairs(folder, config.task.pairs), "in", config)


def of_oracle(problem: LinkProblem, weights: oracle.Weights) -> dict[str, Any]:
    """Loss and gradient of the first step, and the rows of an evaluation."""
    loss, gradient, _ = problem.gradient(weights, 1, 0)
    rows = problem.outputs(weights)
    return {"loss": loss, "gradient": gradient, "logits": rows}


def judge(graph: Graph, problem: LinkProblem, weights: oracle.Weights) -> dict[str, Any]:
    """Loss of the first step, gradients by stored name and rows of vertices, by PyTorch."""
    task, drawer = problem.task, problem.drawer
    state = to_state(problem.rows.network, weights)
    of = {name: torch.tensor(value, requires_grad=True) for name, value in state.items()}
    decoder = {name: value for name, value in of.items() if name.startswith("decoder.")}
    degrees = torch.bincount(torch.tensor(problem.rows.arcs.degrees))
    ends = problem.rows.features.shape[1], problem.config.model.hidden[-1]
    module = Net(problem.config, *ends, 0, degrees, graph)
    network = {name: value for name, value in of.items() if name not in decoder}
    module.load_state_dict(network)
    rows = module(torch.tensor(problem.rows.features), edges_of(problem.graph), None)
    every = np.arange(drawer.sampler.n)
    drawn = drawer.draw(1, 0, every[drawer.batches_of(1, every) == 0])
    of_pairs = None if drawn.relations is None else torch.tensor(drawn.relations, dtype=torch.long)
    of_negatives = None if of_pairs is None else of_pairs[:, None].expand(drawn.counts.shape)
    positives = scores(task, rows, torch.tensor(drawn.pairs), decoder, of_pairs)
    negatives = scores(task, rows, torch.tensor(drawn.negatives), decoder, of_negatives)
    counts = torch.tensor(counted(problem, drawn))
    loss = loss_of(task.objective, positives, negatives, counts)
    loss.backward()
    named = [*module.named_parameters(), *decoder.items()]
    gradient = {name: p.grad.numpy() for name, p in named}
    return {"loss": loss.item(), "gradient": gradient, "logits": rows.detach().numpy()}


def counted(problem: LinkProblem, drawn: Drawn) -> np.ndarray:
    """Which negatives count, (m, K) bool."""
    if not problem.task.filter:
        return drawn.counts
    pairs = problem.pairs
    relations = pairs.relations.get("train", np.zeros(len(pairs.positives["train"]), int)).tolist()
    listed = zip(pairs.positives["train"].tolist(), relations, strict=True)
    known = {(*pair, relation) for pair, relation in listed}
    if not pairs.directed or symmetric(problem.task):
        known |= {(v, u, relation) for u, v, relation in known}
    own = np.zeros(len(drawn.pairs), int) if drawn.relations is None else drawn.relations
    negatives = zip(drawn.negatives.tolist(), own.tolist(), strict=True)
    learned = [[(*pair, relation) in known for pair in of] for of, relation in negatives]
    return drawn.counts & ~np.array(learned)


def scores(
    task: LinkOptions,
    rows: torch.Tensor,
    pairs: torch.Tensor,
    of: dict[str, torch.Tensor],
    relations: torch.Tensor | None = None,
) -> torch.Tensor:
    """The scores of pairs (…, 2), by the decoder's formula."""
    x, y = rows[pairs[..., 0]], rows[pairs[..., 1]]
    if tells_relations(task):
        return of_triples(task, x, of["decoder.relation"][relations], y) + of.get("decoder.bias", 0)
    if task.decoder == "dot":
        return (x * y).sum(-1)
    if task.decoder == "distmult":
        return (of["decoder.relation"].reshape(-1) * x * y).sum(-1)
    h = x * y if task.decoder == "hadamard" else torch.cat([x, y], -1)
    activation = getattr(torch.nn.functional, task.decoder_activation)
    for k in range(len(task.decoder_hidden) + 1):
        h = activation(h) if k else h
        weight = of[f"decoder.lins.{k}.weight"]
        h = h @ weight.reshape(-1, h.shape[-1]).T + of.get(f"decoder.lins.{k}.bias", 0)
    return h[..., 0]


def of_triples(
    task: LinkOptions, x: torch.Tensor, r: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """The scores of triples, as ``torch_geometric.nn.kge`` gives them; rows of length 1."""
    if task.decoder == "distmult":
        return (x * r * y).sum(-1)
    if task.decoder == "transe":
        x, y = (torch.nn.functional.normalize(z, dim=-1) for z in (x, y))
        return -(x + r - y).norm(p=task.decoder_p, dim=-1)
    x, r, y = (torch.complex(*z.chunk(2, -1)) for z in (x, r, y))
    return (x * r * y.conj()).sum(-1).real


def loss_of(
    objective: str, positives: torch.Tensor, negatives: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    """The mean over positives (m,) with their negatives (m, K), of those that count."""
    share = counts / counts.shape[1]
    if objective == "bce":
        return (softplus(-positives) + (share * softplus(negatives)).sum(1)).mean()
    if objective == "auc":
        return (share * (1 - positives[:, None] + negatives) ** 2).sum(1).mean()
    among = negatives.masked_fill(~counts, -torch.inf)
    whole = torch.cat([positives[:, None], among], 1).logsumexp(1)
    return (whole - positives).mean()
