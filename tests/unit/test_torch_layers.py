"""Layers of PyTorch and PyTorch Geometric on a part of a graph: what docs/pytorch.md says of each.

A part is own vertices, the halo that their edges come from, and these edges. Every layer is tried
as the page tells: with a tuple, and with one matrix of which the first rows are kept.
"""

import contextlib
import gc
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from stored_graphs import graph_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is not installed")

from gcnmpi.torch.agreement import Agreement  # noqa: E402 (imports PyTorch)
from gcnmpi.torch.alone import alone  # noqa: E402
from gcnmpi.torch.objects import _induced, _some  # noqa: E402
from partition.graph.graph import ArcData  # noqa: E402

N, D = 60, 6
PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"
# Layers of several vertex types, of points or hyperedges in place of edges, or that need other
# libraries.
NOT_TRIED = {
    "MessagePassing", "CuGraphSAGEConv", "CuGraphGATConv", "CuGraphRGCNConv", "FusedGATConv",
    "SplineConv", "PANConv", "HGTConv", "HANConv", "HeteroConv", "SignedConv", "MeshCNNConv",
    "GravNetConv", "DynamicEdgeConv", "XConv", "HypergraphConv", "WLConv",
}  # fmt: skip
HOW = ("tuple", "first rows")


class Part:
    """A directed graph with self-loops, sorted by target, and a part of it."""

    def __init__(self):
        torch.manual_seed(0)
        target, source = ((torch.rand(N, N) < 0.04) | torch.eye(N, dtype=torch.bool)).nonzero().T
        self.whole = torch.stack([source, target])
        self.own = torch.randperm(N)[:17]
        self.kept = torch.isin(target, self.own)
        sources = source[self.kept].unique()
        self.order = torch.cat((self.own, sources[~torch.isin(sources, self.own)]))
        local = torch.full((N,), -1)
        local[self.order] = torch.arange(len(self.order))
        self.edges = local[self.whole[:, self.kept]]
        self.x, self.pos, self.normal = (torch.randn(N, width) for width in (D, 3, 3))
        entries = len(source)
        self.of_edges = {
            "edge_attr": torch.rand(entries, 3),
            "edge_weight": torch.rand(entries),
            "edge_type": torch.randint(0, 2, (entries,)),
        }
        self.node_type = torch.randint(0, 2, (N,))
        self.degrees = torch.bincount(torch.bincount(target))

    def result(self, conv, how, wanted):
        """Own rows, of a convolution of the whole graph or of the part."""
        rows = {"x": self.x, "x0": self.x * 0.5, "pos": self.pos, "normal": self.normal,
                "layers": torch.stack((self.x, -self.x), 1)}  # fmt: skip
        first = "layers" if "layers" in wanted else "x"
        given = [rows[first], *(rows[name] for name in ("x0", "pos", "normal") if name in wanted)]
        edges = {name: self.of_edges[name] for name in wanted if name in self.of_edges}
        types = {"node_type": self.node_type} if "node_type" in wanted else {}
        if how == "whole":
            return out_of(conv(*given, self.whole, **types, **edges))[self.own]
        edges = {name: values[self.kept] for name, values in edges.items()}
        edges |= {name: values[self.order] for name, values in types.items()}
        expanded = [values[self.order] for values in given]
        if how == "first rows":
            return out_of(conv(*expanded, self.edges, **edges))[: len(self.own)]
        tuples = [(e, values[self.own]) for e, values in zip(expanded, given, strict=True)]
        return out_of(conv(*tuples, self.edges, **edges))


def out_of(result):
    return result[0] if isinstance(result, tuple) else result


def same(found, expected):
    return found.shape == expected.shape and torch.allclose(found, expected, atol=1e-5)


linear = torch.nn.Linear
NO_LOOPS = {"add_self_loops": False}
PLAIN = {"normalize": False}
# Name → arguments, keywords, and what it is called with besides x and the edges.
CONVS = {
    "SimpleConv": ((), {}), "SAGEConv": ((D, 4), {}), "GraphConv": ((D, 4), {}, "edge_weight"),
    "ResGatedGraphConv": ((D, 4), {}), "GATConv": ((D, 4), NO_LOOPS),
    "GATv2Conv": ((D, 4), NO_LOOPS), "TransformerConv": ((D, 4), {"beta": True}),
    "GINConv": ((linear(D, 4),), {}), "GINEConv": ((linear(D, 4),), {"edge_dim": 3}, "edge_attr"),
    "MFConv": ((D, 4), {}), "RGCNConv": ((D, 4, 2), {}, "edge_type"),
    "FastRGCNConv": ((D, 4, 2), {}, "edge_type"), "RGATConv": ((D, 4, 2), {}, "edge_type"),
    "PointNetConv": ((linear(D + 3, 4),), NO_LOOPS, "pos"),
    "PPFConv": ((linear(D + 4, 4),), NO_LOOPS, "pos", "normal"),
    "GMMConv": ((D, 4, 3, 2), {}, "edge_attr"),
    "NNConv": ((D, 4, linear(3, 4 * D)), {}, "edge_attr"), "CGConv": ((D,), {}),
    "EdgeConv": ((linear(2 * D, 4),), {}), "FeaStConv": ((D, 4), NO_LOOPS),
    "PointTransformerConv": ((D, 4), NO_LOOPS, "pos"), "LEConv": ((D, 4), {}),
    "GENConv": ((D, 4), {"norm": "layer"}), "WLConvContinuous": ((), {}), "FiLMConv": ((D, 4), {}),
    "GeneralConv": ((D, 4), {}),
    "AGNNConv": ((), NO_LOOPS), "ClusterGCNConv": ((D, 4), {}), "SuperGATConv": ((D, 4), NO_LOOPS),
    "PNAConv": ((D, 4, ["mean", "max", "std"], ["identity", "amplification"], None), {}),
    "PointGNNConv": ((linear(D, 3), linear(D + 3, 5), linear(5, D)), {}, "pos"),
    "HEATConv": ((D, 4, 2, 2, 3, 3, 3), {}, "node_type", "edge_type", "edge_attr"),
    "ChebConv": ((D, 4, 3), {}), "GatedGraphConv": ((D, 2), {}), "TAGConv": ((D, 4), {}),
    "ARMAConv": ((D, 4), {}), "SGConv": ((D, 4), {}), "SSGConv": ((D, 4, 0.1), {}),
    "APPNP": ((2, 0.1), {}), "MixHopConv": ((D, 4), {}),
    "DirGNNConv": ((nn.SAGEConv(D, 4),), {}),
    "GPSConv": ((D, nn.SAGEConv(D, D)), {"norm": None, "heads": 2}),
    "GCNConv": ((D, 4), {}), "GCN2Conv": ((D, 0.1), {}, "x0"), "LGConv": ((), {}),
    "FAConv": ((D,), {}, "x0"), "PDNConv": ((D, 4, 3, 5), NO_LOOPS, "edge_attr"),
    "DNAConv": ((D,), {}, "layers"), "EGConv": ((D, 4), {"num_heads": 2}),
    "AntiSymmetricConv": ((D,), {}),
}  # fmt: skip
# The same without their degrees, as the page says.
CHANGED = {
    "GCNConv": ((D, 4), PLAIN, "edge_weight"), "GCN2Conv": ((D, 0.1), PLAIN, "x0", "edge_weight"),
    "LGConv": ((), PLAIN, "edge_weight"), "FAConv": ((D,), PLAIN, "x0", "edge_weight"),
    "PDNConv": ((D, 4, 3, 5), NO_LOOPS | PLAIN, "edge_attr"),
    "DNAConv": ((D,), PLAIN, "layers", "edge_weight"),
    "EGConv": ((D, 4), {"num_heads": 2, "aggregators": ["mean", "max"]}),
    "AntiSymmetricConv": ((D, nn.SAGEConv(D, D)), {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def part():
    return Part()


def works(part, name, case):
    """How a convolution gives on the part what it gives on the whole graph; and the convolution."""
    arguments, keywords, *wanted = case
    arguments = [part.degrees if argument is None else argument for argument in arguments]
    conv = getattr(nn, name)(*arguments, **keywords).eval()
    expected, found = part.result(conv, "whole", wanted), dict.fromkeys(HOW, False)
    for how in HOW:
        with contextlib.suppress(Exception):  # it does not take this
            found[how] = same(part.result(conv, how, wanted), expected)
    return found, conv


def test_the_page_says_how_each_layer_is_called(part):
    rows = [line.split(" | ") for line in PAGE.read_text("utf-8").splitlines()]
    told = [re.findall(r"`(\w+Conv\w*|APPNP)`", row[1]) for row in rows if len(row) == 2]
    documented = [names for names in told if len(names) > 2]
    found = {how: [] for how in (*HOW, "changed", "neither")}
    for name, case in CONVS.items():
        how, conv = works(part, name, case)
        changed = name in CHANGED and works(part, name, CHANGED[name])[0]["first rows"]
        kind = next((kind for kind in HOW if how[kind]), "changed" if changed else "neither")
        found[kind].append(name)
        # The check of modules names those that would give something else, and no others.
        assert bool(list(alone(conv))) == (kind in ("changed", "neither")), name
    assert [sorted(names) for names in documented] == [sorted(names) for names in found.values()]
    assert {*CONVS, *NOT_TRIED} == set(nn.conv.__all__)
    for name, (arguments, keywords, *_) in CHANGED.items():
        assert not list(alone(getattr(nn, name)(*arguments, **keywords)))


ROWWISE = [
    torch.nn.BatchNorm1d(D), torch.nn.BatchNorm1d(D, affine=False), torch.nn.LayerNorm(D),
    torch.nn.GroupNorm(2, D), torch.nn.InstanceNorm1d(D), torch.nn.Softmax(0), torch.nn.Softmax(1),
    torch.nn.LogSoftmax(0), torch.nn.Dropout(0.5), torch.nn.Dropout(0.0), torch.nn.PReLU(),
    torch.nn.AlphaDropout(0.5), torch.nn.RReLU(), torch.nn.MultiheadAttention(D, 1),
    nn.BatchNorm(D), nn.InstanceNorm(D), nn.LayerNorm(D), nn.LayerNorm(D, mode="node"),
    nn.GraphNorm(D), nn.GraphSizeNorm(), nn.PairNorm(), nn.MeanSubtractionNorm(),
    nn.DiffGroupNorm(D, 2), nn.MLP([D, 4, 3]), nn.MLP([D, 4, 3], norm=None), nn.MLP([D, 3]),
    nn.SumAggregation(), nn.MeanAggregation(), nn.SoftmaxAggregation(), nn.Set2Set(D, 1),
    nn.JumpingKnowledge("cat"),
]  # fmt: skip


@pytest.mark.parametrize("module", ROWWISE, ids=lambda module: repr(module)[:40])
def test_modules_that_look_at_other_rows_are_named(part, module):
    attention = isinstance(module, torch.nn.MultiheadAttention)

    def result(x):
        torch.manual_seed(3)
        jumps = isinstance(module, nn.JumpingKnowledge)
        return out_of(module(*([x] * 3 if attention else [[x, x]] if jumps else [x])))

    whole, own = result(part.x), result(part.x[part.own])
    alike = len(whole) == N and same(own, whole[part.own])
    lines = list(alone(torch.nn.Sequential(module)))
    assert bool(lines) != alike
    assert all(line.startswith("0") and "\n" not in line for line in lines)


def test_models_and_layers_are_told_once_and_by_name():
    net = torch.nn.ModuleDict({
        "gat": nn.GATConv(D, 4, dropout=0.6), "sage": nn.SAGEConv(D, 4, aggr="mean"),
        "whole": nn.GraphSAGE(D, 4, num_layers=2), "one": nn.GraphSAGE(D, 4, num_layers=1),
        "gps": nn.GPSConv(D, nn.GINConv(linear(D, D)), dropout=0.5),
        "types": nn.HeteroBatchNorm(D, 2), "pool": nn.TopKPooling(D),
    })  # fmt: skip
    assert [line.split(" ")[:2] for line in alone(net)] == [
        ["gat:", "GATConv"], ["whole:", "GraphSAGE"], ["gps:", "GPSConv"],
        ["types:", "HeteroBatchNorm"], ["pool:", "TopKPooling"],
    ]  # fmt: skip
    (line,) = alone(nn.GENConv(D, 4))  # whose MLP normalises over vertices, unless told otherwise
    assert line.startswith("mlp.1: BatchNorm1d ")
    (line,) = alone(nn.PairNorm())
    assert line.startswith("the model: PairNorm ")


# Numbers by which ranks compare weights, and a part of a graph to verify.


class Spoken:
    """The ranks of a run, of which one is here: what it says is kept."""

    comm = SimpleNamespace(size=2, rank=0)

    def sums(self, numbers):
        self.numbers = numbers
        return [2 * number for number in numbers]


def spoken(agreement, ranks, weights):
    loss = sum((k * weight.square()).sum() for k, weight in enumerate(weights, 1))
    agreement.sum((), loss, "mean")
    return np.array(ranks.numbers)


def weights_of(seed):
    torch.manual_seed(seed)
    return [torch.randn(4, requires_grad=True) for _ in range(3)]


def test_weights_at_the_addresses_of_an_earlier_model_are_compared_in_their_own_order():
    """Which address a rank gives to a tensor is its own affair."""
    ranks, earlier, later = Spoken(), weights_of(0), weights_of(1)
    expected = spoken(fresh := Agreement(ranks, ()), ranks, later)
    spoken(agreement := Agreement(ranks, ()), ranks, earlier)
    addresses = reversed(fresh._known)  # in another order than they are found in
    agreement._known = dict(zip(addresses, agreement._known.values(), strict=True))
    del earlier
    gc.collect()
    agreement._calls.clear()  # so that it compares in the next call
    np.testing.assert_array_equal(spoken(agreement, ranks, later), expected)


@pytest.mark.parametrize("count", [1, 20, 60, 100])
def test_a_part_has_all_arcs_among_its_vertices(count):
    random, n = np.random.default_rng(0), 60
    dense = random.random((n, n)) * (random.random((n, n)) < 0.05)
    arcs = np.count_nonzero(dense)
    graph = graph_of(
        dense,
        features=random.random((n, 3)).astype(np.float32),
        labels=random.integers(0, 3, n).astype(np.int32),
        masks={"train": np.arange(n) < 30, "val": np.arange(n) >= 30},
        arc_data=ArcData(np.arange(arcs, dtype=np.float32)[:, None]),
    )
    chosen = _some(graph, count)
    assert len(chosen) == min(n, count)
    assert (np.diff(chosen) > 0).all()
    found = _induced(graph, chosen)
    part, numbers = np.zeros((2, len(chosen), len(chosen)))
    part[tuple(found["edge_index"])] = found["edge_weight"]
    numbers[tuple(found["edge_index"])] = found["arc_features"][:, 0] + 1
    whole = np.zeros((n, n))
    whole[np.nonzero(dense)] = np.arange(arcs) + 1
    np.testing.assert_array_equal(part, dense[np.ix_(chosen, chosen)])
    np.testing.assert_array_equal(numbers, whole[np.ix_(chosen, chosen)])
    np.testing.assert_array_equal(found["x"], graph.features[chosen])
    np.testing.assert_array_equal(found["y"], graph.labels[chosen])
    assert ("train_mask" in found) == bool((chosen < 30).any())
