"""The memory that commands forecast is what they take, where features are wide; and its refusal."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from axes import ALL
from stored_graphs import store
from words import line

from partition.graph.relations import Relation
from partition.graph.store import open_graph
from partition.graph.vertex_pairs import split_pairs, write_pairs
from partition.importing.synthetic import hetero, rmat, sbm

N, WIDTH = 5000, 4096
WIDE = ["model.order=combine", "model.hidden=[512]"]
CASES = {
    "p2p": ("rp-4", ["scheme.name=p2p"]),
    "shared": ("rp-4", ["scheme.name=p2p", "scheme.transport=shared"]),
    "normalised": ("rp-4", ["scheme.name=p2p", "graph.feature_norm=row"]),
    "dropout": ("rp-4", ["scheme.name=p2p", "model.order=aggregate", "model.input_dropout=0.1"]),
    "bcast": (None, ["scheme.name=bcast"]),
    "dense copies": ("rp-2", ["scheme.name=replicated", "scheme.sparse=false"]),
    "sparse copies": ("rp-2", ["scheme.name=replicated"]),
    "summa": (None, ["scheme.name=summa", "scheme.grid=2x2"]),
    "split3d": (None, ["scheme.name=split3d", "scheme.grid=1x1x4"]),
    "tensor3d": (None, ["scheme.name=tensor3d", "scheme.grid=2x2x1"]),
    "columns": (None, ["scheme.name=columns"]),
    "wide layers": (None, ["scheme.name=split3d", "scheme.grid=1x2x2", *WIDE]),
    "wide copies": ("rp-2", ["scheme.name=replicated", *WIDE]),
}
BATCHES = {
    "neighbours": ["train.batches=neighbor,4096,10,5"],
    "shared neighbours": ["train.batches=labor,4096,10,5", "dtype=float64"],
    "vertices": ["train.batches=vertex,20%"],
    "vertices, summa": ["train.batches=vertex,20%", "scheme.name=summa", "scheme.grid=2x2"],
    "vertices, tensor3d": ["train.batches=vertex,20%", "scheme.name=tensor3d", "scheme.grid=2x2x1"],
}
LINKS = {
    "pairs": [],
    "pairs and a pool": ["task.batch=50000", "task.negatives=pool,8", "task.objective=softmax"],
    "arcs left out": ["task.supervise=0.3"],
}
RELATIONS = {
    "rgcn, mixed": ["model.name=rgcn", "scheme.exchange=mixed"],
    "compgcn": ["model.name=compgcn"],
}
# Values that are made again, of rows of arcs and of whole networks.
LEFT = {
    "rows of arcs again": ["model.name=gat", "model.hidden=[128,128]", "train.memory=least"],
    "values again": ["model.name=sage", "model.hidden=[256,256,256]", "train.memory=least"],
}
EXCHANGES = ("rows", "mixed")  # of a graph of many arcs and few features
ARCS = 1 << 20
INFERRED = {
    "gcn": ("arcs", []),
    "maximum": ("arcs", ["model.name=sage", "model.aggregation=max"]),
    "gatv2": ("arcs", ["model.name=gatv2", "model.heads=2"]),
    "gcn, sparse features": ("sparse", []),
    "sage, sparse features": ("sparse", ["model.name=sage"]),
}
PROPAGATED = {
    "sgc": ("wide", "sgc", []),
    "pagerank": ("arcs", "pagerank", ["iterations=3"]),
    "fastrp": ("arcs", "embed", ["dimension=256", "weights=1,1"]),
    "randsvd": ("wide", "embed", ["method=randsvd", "dimension=500", "rounds=0", "weights=1"]),
}
# Each sum in them is in a daily case too, or they take long.
NIGHTLY = {"normalised", "dense copies", "wide copies", "wide layers", "maximum", "fastrp",
           "vertices, summa", "vertices, tensor3d",
           "neighbours", "values again", "pairs and a pool", "arcs left out", "compgcn", "sgc",
           "sage, sparse features"}  # fmt: skip
EVERY = {**CASES, **INFERRED, **PROPAGATED, **BATCHES, **LEFT, **LINKS, **RELATIONS}
NAMES = [name for name in EVERY if ALL or name not in NIGHTLY]


@pytest.fixture(scope="module")
def measured(run_cases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    graph = sbm(N, 4, degree=6, features=1, seed=0)
    features = np.random.default_rng(0).random((N, WIDTH), np.float32)
    store(folder / "wide.graph", replace(graph, features=features), 2, 4)
    arcs = rmat(16, ARCS, features=4, classes=4)
    store(folder / "arcs.graph", arcs, 4)
    filled = np.random.default_rng(1).random((arcs.n, 200), np.float32)
    arcs = replace(arcs, features=np.where(filled < 0.1, filled, 0))
    store(folder / "sparse.graph", arcs, 4, keep_features="sparse")
    batches = rmat(15, 1 << 19, features=64, classes=4)
    few = np.arange(batches.n) % 4 == 0  # batches are as large, and there are fewer of them
    store(folder / "batches.graph", replace(batches, masks={"train": few, "val": ~few}), 4)
    linked = rmat(15, 1 << 18, features=64, classes=4)
    store(folder / "linked.graph", linked, 4)
    facts = {"directed": True, "graph_id": open_graph(folder / "linked.graph").manifest.id}
    pairs = split_pairs(linked, (0.98, 0.01, 0.01), 0, name="links", **facts)
    write_pairs(folder / "linked.graph", pairs)
    types = {"paper": (10000, 64), "author": (15000, 64)}
    ends = Relation("author", "writes", "paper"), Relation("paper", "cites", "paper")
    typed = hetero(types, dict.fromkeys(ends, 150_000), reverse=True)
    store(folder / "typed.graph", typed, 4)

    def case(graph, *settings, partition="rp-4", **more):
        settings = ["loading.max_buffer_mb=8", *settings]
        path = folder / f"{graph}.graph"
        return {"graph": path, "partition": partition, "settings": settings, **more}

    sage, out = ["model.name=sage", "model.hidden=[64]"], folder / "rows.npy"
    deep = ["model.hidden=[128,128]"]
    exchanges = {name: case("arcs", f"scheme.exchange={name}") for name in EXCHANGES}
    cases = {
        **{name: case("wide", *own, partition=of) for name, (of, own) in CASES.items()},
        **{f"the first {name}": one for name, one in exchanges.items()},
        **exchanges,
        **{name: case(of, *deep, *own, infer=True) for name, (of, own) in INFERRED.items()},
        **{
            name: case(of, *own, method=method, out=out)
            for name, (of, method, own) in PROPAGATED.items()
        },
        **{name: case("batches", *sage, *own) for name, own in BATCHES.items()},
        **{name: case("batches", *own) for name, own in LEFT.items()},
        **{name: case("linked", "task.name=links", *sage, *own) for name, own in LINKS.items()},
        **{name: case("typed", "model.hidden=[64,64]", *own) for name, own in RELATIONS.items()},
    }
    cases = {name: case for name, case in cases.items() if ALL or name not in NIGHTLY}
    # Freed memory goes back to the system, so that one case does not use what another has left.
    env = {"MALLOC_MMAP_THRESHOLD_": "65536"}
    results = run_cases("memory", 4, list(cases.values()), timeout=300, env=env, cold=True)
    return dict(zip(cases, results, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_the_forecast_is_what_a_run_takes(measured, name):
    """So features that never change are held once, not twice as H⁰ and M·H⁰, nor with halos."""
    bound = 0.1 if name in {*CASES, *INFERRED, *PROPAGATED} else 0.075
    found = measured[name]
    assert found["forecast"] == pytest.approx(found["peak"], rel=bound), found


@pytest.mark.parametrize("name", EXCHANGES)
def test_loading_many_arcs_and_planning_their_exchange_take_no_more(measured, name):
    """Not one array of a rank's arcs, once its process has what a first run leaves in it.

    That are some MB: pages of libraries, objects, small arrays between others.
    """
    found, array = measured[name], 8 * ARCS / 4
    assert found["peak"] < found["forecast"] + array, found


def test_what_has_no_room_is_refused_on_all_ranks_unless_forced(gcnmpi_lines, tmp_path):
    graph = store(tmp_path / "g.graph", sbm(20_000, 3, degree=2, features=16), 2)
    weights, out = tmp_path / "w.npz", tmp_path / "y.npy"
    shapes = {"convs.0.lin.weight": (64, 16), "convs.1.lin.weight": (3, 64)}
    np.savez(weights, **{name: np.ones(shape) for name, shape in shapes.items()})
    asked = {
        "inference": line("infer", graph, partition="rp-2", weights=weights, out=out),
        "sgc": line("propagate", graph, "sgc", partition="rp-2", out=out),
    }
    for (name, words), free, force in product(asked.items(), (10**12, 10**6), (False, True)):
        out.unlink(missing_ok=True)
        given = [f"{free} bytes", *words, *["--force"] * force]
        fits = force or free > 10**6
        for told in gcnmpi_lines(2, [given])[0]:
            says = () if fits else (f"{name} needs", "0.001 GB free", "--force")
            assert all(text in told for text in says) if says else told is None
        assert out.exists() == fits
