"""Networks with rows of arcs against PyTorch Geometric's layers, and MeshGraphNet against plain
PyTorch: loss, gradients and logits in float64, with the names of files of weights.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from small_arcs import ARC_D, CLASSES, D, N, SmallRun

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pyg = pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is not installed")

sys.path.append(str(Path(__file__).parents[2] / "scripts"))

from peers.mesh_graph_net import MeshGraphNet  # noqa: E402

from gcnmpi.nn.state import to_parameters, to_state  # noqa: E402

TOLERANCE = 1e-10
WIDTH = 6
RELU = torch.nn.functional.relu


def gat(kind):
    def layer(d_in, width, last, degrees):
        heads = 3 if last else 2
        columns = width if last else width // heads
        edges = {"edge_dim": ARC_D, "concat": not last}
        return getattr(pyg, kind)(d_in, columns, heads, **edges)

    return {"heads": 2, "out_heads": 3, "arc_features": True}, layer


def transformer(arcs, **options):
    def layer(d_in, width, last, degrees):
        heads = 3 if last else 2
        columns = width if last else width // heads
        edges = {"edge_dim": ARC_D} if arcs else {}
        return pyg.TransformerConv(d_in, columns, heads, concat=not last, **options, **edges)

    return {"heads": 2, "out_heads": 3, "arc_features": arcs, **options}, layer


def gated(arcs):
    edges = {"edge_dim": ARC_D} if arcs else {}
    return {"arc_features": arcs}, lambda d_in, width, last, degrees: pyg.ResGatedGraphConv(
        d_in, width, **edges
    )


def pna(arcs, aggregators, scalers, **options):
    def layer(d_in, width, last, degrees):
        edges = {"edge_dim": ARC_D} if arcs else {}
        return pyg.PNAConv(d_in, width, aggregators, scalers, degrees, **options, **edges)

    joined = {"aggregators": "+".join(aggregators), "scalers": "+".join(scalers)}
    return {"arc_features": arcs, **joined, **options}, layer


def sage(*kinds):
    return {"aggregation": "+".join(kinds)}, lambda d_in, width, last, degrees: pyg.SAGEConv(
        d_in, width, list(kinds)
    )


def gine(d_in, width, last, degrees):
    mlp = pyg.MLP([d_in, width, width], norm="layer_norm", norm_kwargs={"mode": "node"})
    return pyg.GINEConv(mlp, train_eps=True, edge_dim=ARC_D)


ALL = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]
CASES = {
    "gine": ({"train_eps": True}, gine),
    "gat": gat("GATConv"),
    "gatv2": gat("GATv2Conv"),
    "transformer": transformer(arcs=False),
    "transformer arcs": transformer(arcs=True),
    "transformer beta": transformer(arcs=True, beta=True),
    "gatedgcn": gated(arcs=False),
    "gatedgcn arcs": gated(arcs=True),
    "pna": pna(False, ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]),
    "pna arcs": pna(True, ["sum", "mean", "std"], ALL),
    "pna towers": pna(True, ["mean", "max"], ALL[:3], towers=2, pre_layers=2, post_layers=3),
    "sage": sage("mean", "max"),
    "sage five": sage("sum", "min", "std", "mean", "max"),
}


class Stack(torch.nn.Module):
    """Two layers with a layer norm and ReLU between them, and linear residuals."""

    def __init__(self, layer, degrees):
        super().__init__()
        ends = [(D, WIDTH, False), (WIDTH, CLASSES, True)]
        self.convs = torch.nn.ModuleList([layer(*end, degrees) for end in ends])
        self.residuals = torch.nn.ModuleList([torch.nn.Linear(*end[:2]) for end in ends])
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(WIDTH)])

    def forward(self, x, edges, attributes):
        takes = ("edge_dim", "edge_encoder")
        for k, (conv, residual) in enumerate(zip(self.convs, self.residuals, strict=True)):
            has_arcs = any(getattr(conv, name, None) for name in takes) or hasattr(conv, "eps")
            given = (attributes,) if has_arcs else ()
            y = conv(x, edges, *given) + residual(x)
            x = RELU(self.norms[k](y)) if k < len(self.norms) else y
        return x


@pytest.fixture(autouse=True)
def _in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("case", CASES)
def test_like_pytorch_geometric(case):
    options, layer = CASES[case]
    stack = {"hidden": [WIDTH], "norm": "layer", "residual": "linear"}
    run = SmallRun({"name": case.split()[0], **stack, **options})
    compare(
        run, Stack(layer, torch.bincount(torch.bincount(torch.tensor(run.targets), minlength=N)))
    )


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("hidden", [1, 2])
def test_like_a_mesh_graph_net(reduction, hidden):
    settings = {"name": "mgn", "hidden": [WIDTH] * 3, "mlp_layers": hidden, "reduction": reduction}
    for arcs in (ARC_D, 0):
        module = MeshGraphNet((D, arcs, CLASSES), WIDTH, 3, hidden, reduction)
        compare(SmallRun(settings, arcs=bool(arcs)), module)


def compare(run, module):
    """Loss, gradients and logits, with the weights of the run and then with those of the module."""
    parameters, network = run.model.parameters, run.network
    weights = {name: parameters[name].copy() for name in network.parameters}
    state = {name: torch.tensor(array) for name, array in to_state(network, weights).items()}
    means = {name: array for name, array in module.state_dict().items() if ".avg_deg_" in name}
    for name, mean in means.items():  # PyTorch Geometric takes them in float32
        assert mean.item() == pytest.approx(state[name].item(), rel=1e-6)
    module.load_state_dict(state)
    edges = torch.tensor(np.stack([run.sources, run.targets]))
    logits = module(torch.tensor(run.x), edges, torch.tensor(run.attributes))
    loss = (logits * torch.tensor(run.grad)).sum()
    loss.backward()
    assert run.loss() == pytest.approx(loss.item(), rel=TOLERANCE)
    assert near(run.model.forward(), logits.detach().numpy())
    run.gradient()
    found = to_state(network, {name: run.model.gradients[name] for name in weights})
    for name, parameter in module.named_parameters():
        assert near(found[name], parameter.grad.numpy()), name
    back = to_parameters(network, {name: array.numpy() for name, array in state.items()})
    assert all(np.array_equal(back[name], array) for name, array in weights.items())


def near(found, expected):
    scale = max(1.0, np.abs(expected).max())
    return np.abs(found - expected).max() <= TOLERANCE * scale
