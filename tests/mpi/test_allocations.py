"""An epoch allocates nothing that grows: with the epochs, or with the graph.

Every case runs on two graphs of which one has twice the rows: what the larger one takes more in an
epoch is what is taken for each row.
"""

from dataclasses import replace

import numpy as np
import pytest
from axes import KERNELS
from stored_graphs import store

from partition.importing.synthetic import sbm

SIZES, EPOCHS, WIDTH = (10_000, 20_000), (15, 5), 16
OBJECTS = 20_000  # bytes that Python's own objects come and go with
# A few numbers for each row, in the loss and for dropout; never a matrix, which takes 64.
PER_ROW = 18
DROPOUT = "model.dropout=0.5"
# Number of ranks → name → settings.
CASES = {
    1: {
        f"{name}, {kernel}": [f"kernel={kernel}", *settings.split()]
        for kernel in KERNELS
        for name, settings in {
            "trained": "model.order=aggregate model.train_features=true",
            "dropout": f"{DROPOUT} model.input_dropout=0.5",
            "sparse features": f"{DROPOUT} model.input_dropout=0.5",
            "cached": "model.order=auto",
        }.items()
        if kernel == "native" or name != "cached"
        if kernel != "scipy" or name == "trained"
    },
    2: {
        "fold": ["scheme.backward=fold"],
        "broadcast one by one": ["scheme.name=bcast", "scheme.overlap=false"],
        "copies of blocks": ["scheme.name=replicated", "scheme.sparse=false"],
        "split3d": ["scheme.name=split3d"],
        "columns": ["scheme.name=columns"],
    },
    4: {
        "bcast": ["scheme.name=bcast"],
        "copies": ["scheme.name=replicated"],
        "summa": ["scheme.name=summa"],
        "tensor3d": ["scheme.name=tensor3d"],
        "columns in a chain": ["scheme.name=columns", "model.name=appnp"],
    },
}
# SciPy's product makes a matrix, and so do optimizer steps in NumPy of what has n rows.
MAKES = [name for name in CASES[1] if "scipy" in name] + ["trained, graphblas"]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    for n in SIZES:
        graph = sbm(n, 4, degree=6, features=WIDTH, seed=0)
        store(folder / f"{n}.graph", graph, 2, 4)
        # As many entries a row as there are hidden columns: a number for each would be a matrix.
        filled = np.random.default_rng(n).random((n, 4 * WIDTH), np.float32)
        sparse = replace(graph, features=np.where(filled < 0.25, filled, 0))
        store(folder / f"sparse {n}.graph", sparse, keep_features="sparse")
    return folder


@pytest.mark.parametrize("nranks", CASES)
def test_an_epoch_allocates_nothing_for_a_row(run_cases, graphs, nranks):
    cases = []
    for name, some in CASES[nranks].items():
        k = nranks // 2 if "copies" in name else nranks
        for n, epochs in zip(SIZES, EPOCHS, strict=True):
            path = graphs / f"{'sparse ' if 'sparse' in name else ''}{n}.graph"
            given = {"settings": [f"model.hidden=[{WIDTH}]", *some], "epochs": epochs}
            cases.append({"graph": path, "partition": f"rp-{k}" if k > 1 else None, **given})
    found = run_cases("allocations", nranks, cases, env={})  # in a process of their own
    for name, small, large in zip(CASES[nranks], found[::2], found[1::2], strict=True):
        assert small["growth"] < OBJECTS, name
        per_row = (large["peak"] - small["peak"]) / (SIZES[1] - SIZES[0]) * nranks
        assert per_row < PER_ROW or name in MAKES, name
