"""Ten modules on a graph that is spread over ranks, each beside what one process would have.

A line that ends in "# ranks" stands in place of the line "# one process: …" above it, if there is
one. Without the former and with the latter, it is the same module in plain PyTorch Geometric, with
a Data object as g: ``python examples/modules.py`` prints that.
"""

import types
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch_geometric import nn
from torch_geometric.utils import degree


class GATv2(torch.nn.Module):
    """Brody et al. 2022, with residuals and layer norms."""

    def __init__(self, g, hidden=16, heads=2):
        super().__init__()
        width = hidden * heads
        self.first = torch.nn.Linear(g.num_features, width)
        self.convs = torch.nn.ModuleList(nn.GATv2Conv(width, hidden, heads) for _ in range(2))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.last = torch.nn.Linear(width, g.num_classes)

    def forward(self, g, epoch=0):
        h = self.first(g.x)
        for layer, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            # one process: z = F.dropout(norm(h), 0.2, self.training)
            z = g.dropout(norm(h), 0.2, epoch, layer, self.training)  # ranks
            # one process: h = h + F.elu(conv(z, g.edge_index))
            h = h + F.elu(conv((g.expand(z), z), g.edge_index))  # ranks
        return self.last(h)


class PNA(torch.nn.Module):
    """Corso et al. 2020: several aggregations, scaled by the degrees of the whole graph."""

    def __init__(self, g, hidden=16):
        super().__init__()
        # one process: degrees = degree(g.edge_index[1], g.num_nodes, torch.long)
        degrees = degree(g.edge_index[1], g.num_own, torch.long)  # ranks
        # one process: counts = torch.bincount(degrees)
        most = int(g.collective.max(degrees.to(g.dtype)))  # ranks
        counts = g.collective.add(torch.bincount(degrees, minlength=most + 1))  # ranks
        wanted = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]
        self.first = nn.PNAConv(g.num_features, hidden, *wanted, counts)
        self.last = nn.PNAConv(hidden, g.num_classes, *wanted, counts)

    def forward(self, g, epoch=0):
        # one process: h = self.first(g.x, g.edge_index).relu()
        h = self.first(g.expand(g.x), g.edge_index)[: g.num_own].relu()  # ranks
        # one process: return self.last(h, g.edge_index)
        return self.last(g.expand(h), g.edge_index)[: g.num_own]  # ranks


class Transformer(torch.nn.Module):
    """Shi et al. 2021, whose attention sees features of edges."""

    def __init__(self, g, hidden=8, heads=2):
        super().__init__()
        d = g.edge_attr.shape[1]
        self.first = nn.TransformerConv(g.num_features, hidden, heads, beta=True, edge_dim=d)
        # one process: self.norm = torch.nn.BatchNorm1d(hidden * heads)
        self.norm = g.batch_norm(hidden * heads)  # ranks
        self.last = nn.TransformerConv(hidden * heads, g.num_classes, concat=False, edge_dim=d)

    def forward(self, g, epoch=0):
        # one process: h = self.norm(self.first(g.x, g.edge_index, g.edge_attr)).relu()
        h = self.norm(self.first((g.expand(g.x), g.x), g.edge_index, g.edge_attr)).relu()  # ranks
        # one process: return self.last(h, g.edge_index, g.edge_attr)
        return self.last((g.expand(h), h), g.edge_index, g.edge_attr)  # ranks


class JumpingSAGE(torch.nn.Module):
    """GraphSAGE (Hamilton et al. 2017) with jumping knowledge (Xu et al. 2018)."""

    def __init__(self, g, hidden=16, layers=3):
        super().__init__()
        widths = [g.num_features] + [hidden] * layers
        self.convs = torch.nn.ModuleList(map(nn.SAGEConv, widths[:-1], widths[1:]))
        self.jump = nn.JumpingKnowledge("lstm", hidden, layers)
        self.last = torch.nn.Linear(hidden, g.num_classes)

    def forward(self, g, epoch=0):
        h, seen = g.x, []
        for conv in self.convs:
            # one process: h = conv(h, g.edge_index).relu()
            h = conv((g.expand(h), h), g.edge_index).relu()  # ranks
            seen.append(h)
        return self.last(self.jump(seen))


class GPS(torch.nn.Module):
    """Rampášek et al. 2022: messages along edges beside linear attention to all vertices."""

    def __init__(self, g, hidden=16):
        super().__init__()
        self.first = torch.nn.Linear(g.num_features, hidden)
        mlp = torch.nn.Sequential(torch.nn.Linear(hidden, hidden), torch.nn.ReLU())
        self.conv = nn.GINEConv(mlp, edge_dim=g.edge_attr.shape[1])
        self.qkv = torch.nn.Linear(hidden, 3 * hidden)
        # one process: self.norm = torch.nn.BatchNorm1d(hidden)
        self.norm = g.batch_norm(hidden)  # ranks
        self.last = torch.nn.Linear(hidden, g.num_classes)

    def forward(self, g, epoch=0):
        h = self.first(g.x)
        # one process: messages = self.conv(h, g.edge_index, g.edge_attr)
        messages = self.conv((g.expand(h), h), g.edge_index, g.edge_attr)  # ranks
        q, k, v = self.qkv(h).chunk(3, dim=1)
        q = q.softmax(1)
        # one process: k = k.softmax(0)
        k = g.collective.softmax(k)  # ranks
        # one process: attended = q @ (k.T @ v)
        attended = q @ g.collective.add(k.T @ v)  # ranks
        return self.last(self.norm(h + messages + attended).relu())


class GIN(torch.nn.Module):
    """Xu et al. 2019, for a class of each of many graphs: ``g.graphs`` is which one a row is of."""

    def __init__(self, g, hidden=16):
        super().__init__()
        widths = [g.num_features, hidden, hidden]
        self.convs = torch.nn.ModuleList(
            nn.GINConv(torch.nn.Sequential(torch.nn.Linear(a, b), torch.nn.ReLU()), train_eps=True)
            for a, b in pairwise(widths)
        )
        self.last = torch.nn.Linear(hidden, 3)

    def forward(self, g, epoch=0):
        h = g.x
        for conv in self.convs:
            # one process: h = conv(h, g.edge_index).relu()
            h = conv((g.expand(h), h), g.edge_index).relu()  # ranks
        # one process: pooled = nn.global_mean_pool(h, g.batch)
        pooled = g.collective.mean(h, g.graphs, g.num_graphs)  # ranks
        return self.last(pooled)


class DeeperGCN(torch.nn.Module):
    """Li et al. 2020: residual blocks of GENConv, whose activations are computed again."""

    def __init__(self, g, hidden=16, layers=4):
        super().__init__()
        self.first = torch.nn.Linear(g.num_features, hidden)
        self.convs = torch.nn.ModuleList(
            nn.GENConv(hidden, hidden, learn_t=True, norm="layer") for _ in range(layers)
        )
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(hidden) for _ in range(layers))
        self.last = torch.nn.Linear(hidden, g.num_classes)

    def forward(self, g, epoch=0):
        def block(h, conv, norm):
            z = norm(h).relu()
            # one process: return h + conv(z, g.edge_index)
            return h + conv((g.expand(z), z), g.edge_index)  # ranks

        h = self.first(g.x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = checkpoint(block, h, conv, norm, use_reentrant=False)
        return self.last(h)


class GCNII(torch.nn.Module):
    """Chen et al. 2020, with M as edges and their weights."""

    def __init__(self, g, hidden=16, layers=4):
        super().__init__()
        self.first = torch.nn.Linear(g.num_features, hidden)
        self.convs = torch.nn.ModuleList(
            # one process: nn.GCN2Conv(hidden, 0.1, 0.5, k, cached=True)
            nn.GCN2Conv(hidden, 0.1, 0.5, k, normalize=False)  # ranks
            for k in range(1, layers + 1)
        )
        self.last = torch.nn.Linear(hidden, g.num_classes)

    def forward(self, g, epoch=0):
        h = start = self.first(g.x).relu()
        start = g.expand(start)  # ranks
        for conv in self.convs:
            # one process: h = conv(h, start, g.edge_index).relu()
            h = conv(g.expand(h), start, g.edge_index, g.edge_weight)[: g.num_own].relu()  # ranks
        return self.last(h)


class APPNP(torch.nn.Module):
    """Gasteiger et al. 2019: predictions, and ten steps of personalised PageRank."""

    def __init__(self, g, hidden=16):
        super().__init__()
        self.first = torch.nn.Linear(g.num_features, hidden)
        self.last = torch.nn.Linear(hidden, g.num_classes)
        # one process: self.spread = nn.APPNP(K=10, alpha=0.1, cached=True)

    def forward(self, g, epoch=0):
        h = start = self.last(self.first(g.x).relu())
        # one process: h = self.spread(start, g.edge_index)
        for _ in range(10):  # ranks
            h = 0.9 * g.aggregate(h) + 0.1 * start  # ranks
        return h


class EdgeMLP(torch.nn.Module):
    """Messages of an MLP of both ends and the features of an edge, as in interaction networks."""

    def __init__(self, g, hidden=16):
        super().__init__()
        self.first = torch.nn.Linear(g.num_features, hidden)
        width = 2 * hidden + g.edge_attr.shape[1]
        self.edge = torch.nn.Sequential(torch.nn.Linear(width, hidden), torch.nn.SiLU())
        self.gate = torch.nn.Linear(hidden, 1)
        self.vertex = torch.nn.Linear(2 * hidden, hidden)
        self.last = torch.nn.Linear(hidden, g.num_classes)

    def forward(self, g, epoch=0):
        h = self.first(g.x)
        source, target = g.edge_index
        for _ in range(2):
            # one process: ends = h[source], h[target]
            ends = g.expand(h)[source], h[target]  # ranks
            messages = self.edge(torch.cat((*ends, g.edge_attr), 1))
            messages = messages * self.gate(messages).sigmoid()
            sums = torch.zeros_like(h).index_add(0, target, messages)
            h = h + self.vertex(torch.cat((h, sums), 1)).relu()
        return self.last(h)


MODULES = {
    "gatv2": GATv2,
    "pna": PNA,
    "transformer": Transformer,
    "sage": JumpingSAGE,
    "gps": GPS,
    "gin": GIN,
    "deepergcn": DeeperGCN,
    "gcnii": GCNII,
    "appnp": APPNP,
    "edge_mlp": EdgeMLP,
}

OPTIONS = {name: {"self_loops": name in ("gcnii", "appnp")} for name in MODULES}
"""What M is, for ``gcnmpi.torch.open``."""


def plain_text():
    """This file as one process would have it."""
    found = []
    for line in Path(__file__).read_text(encoding="utf-8").splitlines():
        marked = line.lstrip().startswith("# one process: ")
        if not line.endswith("# ranks"):
            found.append(line.replace("# one process: ", "") if marked else line)
    return "\n".join(found)


def one_process():
    """The modules of one process, by their names."""
    module = types.ModuleType("plain")
    module.__file__ = __file__
    exec(compile(plain_text(), "plain", "exec"), module.__dict__)
    return module.MODULES


if __name__ == "__main__":
    print(plain_text())
