"""Batch norms have one curve: losses, logits and every metric, for any number of ranks and kernel.

In front of them, a bias has no effect, columns may be constant, and a batch may have few rows: what
is 0 in exact arithmetic has to be 0, since optimizers make steps of full length of rounding errors.
The tests take a part of the grid; all of it, with 100 epochs, where GCNMPI_TESTS is "all".
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from axes import ALL
from stored_graphs import store, store_parts

from partition.importing.synthetic import sbm

COMMON = (
    "dtype=float64", "model.norm=batch", "model.hidden=8,8", "train.lr=0.02",
    "train.weight_decay=5e-4", "train.schedule=plateau", "train.plateau_patience=2",
    "task.metrics=f1_micro,f1_macro,roc_auc,average_precision",
)  # fmt: skip
NETWORKS = {
    "gcn": ("model.name=gcn", "model.residual=linear"),
    "gcn-row": (
        "model.name=gcn", "graph.normalize=row", "model.activation=elu", "model.residual=identity",
        "model.linear_before=true",
    ),
    "sage": ("model.name=sage",),
    "sage-max": ("model.name=sage", "model.aggregation=max", "model.include_self=true",
                 "model.activation=none"),
    "gin": ("model.name=gin", "model.eps=0.2"),
    "gin-learned": ("model.name=gin", "model.train_eps=true"),
    "gat": ("model.name=gat", "model.heads=2", "model.residual=linear"),
    "sign": ("model.name=sign", "model.hidden=8"),
    "mlp": ("model.name=mlp", "model.activation=gelu"),
}  # fmt: skip
# On a graph of 13 vertices: batches of few rows, of which the last has one. GIN on two is left out:
# of rows that its batch norms make nearly equal, rounding changes the loss by 1e-8 on one rank.
FEW = ("vertex,3", "vertex,2", "neighbor,2,2,2,2")
BATCHES = dict.fromkeys(NETWORKS, FEW) | {"mlp": FEW[:2], "sign": FEW[:2]}
BATCHES |= {"gin": FEW[:1], "gin-learned": FEW[:1]}
# How many epochs, of which networks, with which kernels on how many ranks, and batches of which.
EPOCHS, SOME, BATCHED = 100, tuple(NETWORKS), tuple(NETWORKS)
RUNS = {1: ("native",)} | dict.fromkeys((2, 3, 7), ("native", "graphblas", "scipy"))
if not ALL:
    EPOCHS, SOME = 12, ("gcn", "gcn-row", "sage-max", "gin-learned", "mlp")
    RUNS, BATCHED = {1: ("native",), 3: ("scipy",)}, ("sage-max",)


@pytest.fixture(scope="module")
def records(trained, tmp_path_factory):
    """Number of ranks → (network, graph or batches, kernel) → its record."""
    folder, found = tmp_path_factory.mktemp("curves"), {}
    random = sbm(90, 3, degree=5, features=4, train=0.4, val=0.3)
    ones = replace(random, features=np.ones_like(random.features))
    small = sbm(13, 3, degree=3, features=4, train=0.6, val=0.3)
    for name, graph in {"random": random, "ones": ones, "small": small}.items():
        path = store(folder / f"{name}.graph", graph)
        for k in RUNS:  # uneven parts in no order
            shares = np.arange(k, 0, -1.0)
            parts = np.random.default_rng(k).choice(k, graph.n, p=shares / shares.sum())
            store_parts(path, f"uneven-{k}", parts, k, mixed=False)
    for nranks, kernels in RUNS.items():
        wanted = {}
        for name, kernel in product(SOME, kernels):
            own = [*COMMON, *NETWORKS[name], f"kernel={kernel}", f"train.epochs={EPOCHS}"]
            of_batches = BATCHES[name] if name in BATCHED else ()
            for what in ("random", "ones", *of_batches):
                path = folder / f"{'small' if what in of_batches else what}.graph"
                more = [f"train.batches={what}"] if what in of_batches else []
                wanted[name, what, kernel] = path, f"uneven-{nranks}", [*own, *more]
        found[nranks] = trained(nranks, wanted, outputs=True)
    return found


@pytest.mark.parametrize("nranks", [nranks for nranks in RUNS if nranks > 1])
def test_a_batch_norm_has_one_curve(records, nranks):
    for name, record in records[nranks].items():
        reference = records[1][*name[:2], "native"]
        assert reference["losses"][-1] < reference["losses"][0]
        for what in ("losses", "logits"):
            expected = np.array(reference[what])
            most = 1e-10 * max(1.0, np.abs(expected).max())
            np.testing.assert_allclose(record[what], expected, rtol=0, atol=most, err_msg=name)
        for got, wanted in zip(record["metrics"], reference["metrics"], strict=True):
            assert got == pytest.approx(wanted, abs=1e-10), name
        for counted, predicted in record["traffic"]:
            assert counted == predicted
