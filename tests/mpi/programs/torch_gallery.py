"""Under mpirun: modules of examples/, and what gcnmpi.torch.verify says of mistakes.

Each module gives the loss and the gradients of one process, by ``verify``. Many small directed
graphs with isolated vertices, a triangulation, atoms; uneven parts. On 3 ranks also gradients of
first and second order by differences. Usage: torch_gallery.py EXAMPLES FOLDER
"""

import gc
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy.spatial import Delaunay
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATv2Conv, SAGEConv

import gcnmpi
import gcnmpi.torch
from gcnmpi.mpi.comm import from_root
from gcnmpi.mpi.process import run
from gcnmpi.torch.functions import Linear

sys.path.append(str(Path(__file__).parents[2]))
from refusals import refuses
from stored_graphs import store_parts, uneven_parts, with_uneven_parts

from partition.errors import DataWarning
from partition.graph.store import open_graph
from partition.graph.vertex_pairs import split_pairs, write_pairs

BOUND = 1e-10
CLASSES = 3
OF_CLASSES = ("gcn", "transformer_conv", "own_layer", "gatv2")
EXAMPLES = ("meshgraphnet", "forces", "links", *OF_CLASSES)


def graphs():
    """Small graphs with classes of vertices, some isolated."""
    torch.manual_seed(0)
    made = []
    for n in range(4, 16):
        arcs = torch.rand(n, n) < 0.35
        arcs[-2:], arcs[:, -2:] = False, False
        edges = arcs.nonzero().T
        x, y = torch.randn(n, 5), torch.randint(0, CLASSES, (n,))
        made.append(Data(x, edges, torch.randn(edges.shape[1], 3), y, train_mask=y >= 0))
    return made


def of_classes(net, g, epoch):
    """Of whole graphs, on ranks and in one process."""
    out = net(g, epoch)
    return g.mean(F.cross_entropy(out, g.graph_y, reduction="none")), out


class Net(torch.nn.Module):
    """Two layers with a mistake."""

    def __init__(self, g, mistake=None):
        super().__init__()
        self.first = SAGEConv(g.num_features, 8)
        self.norm = torch.nn.BatchNorm1d(8) if mistake == "norm" else g.batch_norm(8)
        self.drop = torch.nn.Dropout(0.5 if mistake == "drop" else 0.0)
        self.last = GATv2Conv(-1, g.num_classes)
        self.mistake, vertices = mistake, g.num_own if mistake == "embedding" else 1
        self.embedding = torch.nn.Parameter(torch.randn(vertices, 8))

    def forward(self, g):
        h = self.norm(self.first((g.expand(g.x), g.x), g.edge_index)) + self.embedding
        whole = h if self.mistake == "expand" else g.expand(self.drop(h))
        if self.mistake == "detach":
            whole = torch.cat((whole[: g.num_own], whole[g.num_own :].detach()))
        return self.last((whole, h), g.edge_index)


def check_mistakes(graph, n):
    """A line says which module or parameter is wrong, and why."""

    def check(mistake, words, loss=None):
        told = str(refuses("", verify, mistake, loss, error=gcnmpi.torch.Differs))
        assert all(word in told for word in words), told

    def verify(mistake, loss=None, **options):
        return gcnmpi.torch.verify(
            lambda g: Net(g, mistake), graph, loss=loss, self_loops=False, **options
        )

    check("norm", ["loss", "norm: BatchNorm1d takes the moments", "2 ranks give something else"])
    check("drop", ["drop: Dropout draws other random numbers"])
    check("detach", ["losses agree", "first.lin_l.weight", "alike: loss, ", "last.att"])
    twice = ["all gradients are counted once a rank"]
    check(None, twice, lambda net, g, epoch: g.collective.mean(net(g).square().sum(1)))
    assert "g.expand" in refuses("", verify, "expand", error=IndexError).__notes__[0]
    found = verify("embedding")
    assert found.vertices == n
    assert "2 ranks and one process agree" in str(found)
    assert verify(None, vertices=40).vertices == 40
    other = gcnmpi.torch.verify, lambda g: g.batch_norm(3 if g.n != g.num_own else 4)
    refuses(r"bias is .* in one process", *other, graph)


def prepare(comm, folder):
    """A triangulation with numbers, classes or pairs with relations to predict; atoms."""
    random = np.random.default_rng(0)
    points = random.random((40, 2))
    ends = Delaunay(points).simplices[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
    ends = np.unique(np.vstack([ends, ends[:, ::-1]]), axis=0)
    x = random.standard_normal((40, 3))
    numbers = {
        "targets": random.standard_normal((40, 2)),
        "arc_features": points[ends[:, 1]] - points[ends[:, 0]],
        "train_mask": np.arange(40) % 3 > 0,
    }
    gcnmpi.graph.from_arrays(ends.T, x, **numbers, folder=folder / "meshgraphnet.graph")
    gcnmpi.graph.from_arrays(ends.T, x, folder=folder / "links.graph")
    classes = random.integers(0, CLASSES, 40)
    gcnmpi.graph.from_arrays(ends[::2].T, x, classes, folder=folder / "classes.graph")
    __import__("forces").make(folder / "forces.graph", 3)

    def add():
        pairs = split_pairs(open_graph(folder / "links.graph").graph, (0.7, 0.1, 0.2))
        some = {mask: random.integers(0, 5, len(of)) for mask, of in pairs.positives.items()}
        write_pairs(folder / "links.graph", replace(pairs, relations=some))
        for name in ("meshgraphnet", "forces", "links", "classes"):
            with_uneven_parts(folder / f"{name}.graph", (comm.size,), mixed=False)

    from_root(comm, add)


def check_gradients(g):
    """Of second order, of a function of numbers that all ranks have, by differences."""

    def add(part):
        total = part.detach().clone()
        g._ranks.sum(total)
        return total

    ways = torch.from_numpy(np.random.default_rng(1).standard_normal((g.n, 2, 2)))[g.ids]
    source, target = g.edge_index

    def loss(numbers):
        shared = Linear.apply(numbers, lambda all_: all_.clone(), add)
        h = torch.sin(ways @ shared)
        products = g.expand(h)[source] * h[target]
        h = torch.zeros_like(h).index_add(0, target, products) + g.aggregate(h**2)
        errors = g.dropout(h, 0.3, epoch=1, layer=0).square().mean(1)
        return g.mean(errors) ** 2 + g.mean(torch.tanh(errors))

    numbers = torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, numbers)
    assert torch.autograd.gradgradcheck(loss, numbers)


def check_relations(g):
    """A positive has its relation, and negatives that positives have in common have none."""
    pairs = g.pairs("corrupt,2", batch=20)
    for mask, some in (("train", pairs.batches(1)), ("val", [pairs.held_out("val")])):
        listed = zip(pairs.set.positives[mask].tolist(), pairs.set.relations[mask], strict=True)
        known = {frozenset(ends): relation for ends, relation in listed}
        for here in some:
            positive = here.positive.numpy()
            ends, relations = here.ends.numpy()[:, positive].T, here.relations.numpy()
            found = [known[frozenset(pair)] for pair in ends.tolist()]
            assert found == relations[positive].tolist()
            assert mask == "train" or (relations[~positive] == -1).all()


def check_objects(comm, data):
    """A list of graphs that rank 0 has is opened as a whole, and its folder goes with it."""
    whole = Batch.from_data_list(data)
    g = gcnmpi.torch.open(data if comm.rank == 0 else None, self_loops=False)
    assert (g.n, g.num_graphs, g.graph_y) == (whole.num_nodes, len(data), None)
    assert torch.equal(g.graphs, whole.batch[g.ids])
    assert torch.equal(g.x, whole.x[g.ids])
    assert torch.equal(g.y, whole.y[g.ids])
    ids = torch.cat((g.ids, g.halo_ids))
    source, target = ids[g.edge_index[0]], g.ids[g.edge_index[1]]
    attr = torch.zeros(g.n, g.n, 3)
    attr[tuple(whole.edge_index)] = whole.edge_attr
    assert torch.equal(g.edge_attr, attr[source, target])
    assert g.collective.add(torch.tensor(len(source))) == whole.num_edges
    folder = Path(g._folder.path)
    del g
    gc.collect()
    comm.Barrier()
    assert not folder.exists()


def check_repeated_edges(comm):
    """Vertices keep their order; edges that are listed twice are told of without a rule."""
    ends = torch.randint(0, 500, (2, 2000), generator=torch.Generator().manual_seed(0))
    ends = torch.cat([ends.unique(dim=1), ends.unique(dim=1)[:, :7]], 1)
    data = Data(x=torch.arange(500.0)[:, None], edge_index=ends, y=torch.arange(500) % 3)
    options = {"normalize": "none", "self_loops": False}
    for rule in (None, "merge", "sum", "keep"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DataWarning)
            g = gcnmpi.torch.open(data, "rp", duplicates=rule, **options)
        told = [str(w.message) for w in caught if w.category is DataWarning]
        assert len(told) == (rule is None and comm.rank == 0), told
        assert all("7 edges are listed more than once" in line for line in told)
        assert torch.equal(data.x[g.ids], g.x)
        assert torch.equal(data.y[g.ids], g.y)
        assert not torch.equal(g.ids, torch.arange(500))
        count = ends.shape[1] - 7 * (rule in (None, "merge"))
        assert float(g.collective.sum(g.aggregate(torch.ones(g.num_own, 1)))) == count
    refuses("more than once", gcnmpi.torch.open, data, "rp", duplicates="error")


def main(comm) -> int:
    warnings.simplefilter("ignore")
    examples, folder = sys.argv[1:]
    sys.path.insert(0, examples)
    gallery = __import__("modules")
    data, pooled = graphs(), graphs()
    for number, each in enumerate(pooled):
        each.y = torch.tensor([number % CLASSES])
    whole = Batch.from_data_list(data)
    check_objects(comm, data)
    check_repeated_edges(comm)
    path = gcnmpi.graph.from_object(whole, folder=f"{folder}/many-{comm.size}.graph").path
    partition = f"uneven-{comm.size}" if comm.size > 1 else None
    parts = uneven_parts(whole.num_nodes, comm.size)
    from_root(comm, lambda: partition and store_parts(path, partition, parts, comm.size, False))
    prepare(comm, Path(folder))
    asked = [
        (make, *((pooled, None, of_classes) if name == "gin" else (path, partition, None)),
         gallery.OPTIONS[name])
        for name, make in gallery.MODULES.items()
    ]  # fmt: skip
    for name in EXAMPLES:
        example = __import__(name)
        here = f"{folder}/{'classes' if name in OF_CLASSES else name}.graph", partition
        own = getattr(example, "loss_of", None)
        loss = own and (lambda net, g, epoch, own=own: own(g, net))
        asked.append((example.Net, *here, loss, example.OPTIONS))
    for make, graph, parts, loss, options in asked:
        gcnmpi.torch.verify(make, graph, parts, loss=loss, tolerance=BOUND, **options)
    links, numbers = f"{folder}/links.graph", {"dtype": torch.float64}
    opened = gcnmpi.torch.open(links, partition, pairs="links", **numbers)
    check_relations(opened)
    if comm.size == 3:
        check_gradients(opened)
    if comm.size == 2:
        check_mistakes(path, whole.num_nodes)
    return 0


if __name__ == "__main__":
    run(main)
