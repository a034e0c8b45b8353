"""An epoch allocates nothing that grows: with the epochs, or with the graph.

Every case runs on two graphs of which one has twice the rows: what the larger one takes more in an
epoch is what is taken for each row.
"""

from dataclasses import replace

import numpy as np
import pytest
from stored_graphs import store

from gcnmpi.options.kernel import KERNELS
from partition.importing.synthetic import sbm

SIZES, EPOCHS, WIDTH = (10_000, 20_000), (15, 5), 16
OBJECTS = 20_000  # bytes that Python's own objects come and go with
# A few numbers for each row, in the loss and for dropout; never a matrix, which takes 64.
PER_ROW = 18
DROPOUT = "model.dropout=0.5"
KERNEL_CASES = {
    f"{kernel}, {name}": [f"kernel={kernel}", *settings]
    for kernel in ("native", "graphblas", "scipy")
    for name, settings in {
        "cached": [],
        "dropout": [DROPOUT, "model.input_dropout=0.5"],
        "sparse features": [DROPOUT, "model.input_dropout=0.5"],
        "trained": ["model.order=aggregate", "model.train_features=true"],
    }.items()
}
SCHEMES = {
    "fold": ["scheme.backward=fold"],
    "bcast": ["scheme.name=bcast"],
    "broadcast one by one": ["scheme.name=bcast", "scheme.overlap=false"],
    "copies": ["scheme.name=replicated"],
    "copies of blocks": ["scheme.name=replicated", "scheme.sparse=false"],
    "summa": ["scheme.name=summa"],
    "split3d": ["scheme.name=split3d"],
    "tensor3d": ["scheme.name=tensor3d"],
    "columns": ["scheme.name=columns"],
    "columns in a chain": ["scheme.name=columns", "model.name=appnp"],
}


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


def measured(run_cases, graphs, nranks, settings):
    """For each case its growth, and bytes a row of a rank that an epoch takes and gives back."""
    cases = []
    for name, some in settings.items():
        k = nranks // 2 if "copies" in name else nranks
        partition = None if k == 1 else f"rp-{k}"
        for n, epochs in zip(SIZES, EPOCHS, strict=True):
            path = graphs / f"{'sparse ' if 'sparse' in name else ''}{n}.graph"
            every = [f"model.hidden=[{WIDTH}]", *some]
            cases.append(
                {"graph": path, "partition": partition, "settings": every, "epochs": epochs}
            )
    results = run_cases("allocations", nranks, cases, env={})  # in a process of their own
    rows = (SIZES[1] - SIZES[0]) / nranks
    pairs = zip(results[::2], results[1::2], strict=True)
    return {
        name: (small["growth"], (large["peak"] - small["peak"]) / rows)
        for name, (small, large) in zip(settings, pairs, strict=True)
    }


def test_kernels_allocate_nothing_in_an_epoch(run_cases, graphs):
    works = {name for name, why in KERNELS.available().items() if why is None}
    settings = {n: some for n, some in KERNEL_CASES.items() if n.split(",")[0] in works}
    found = measured(run_cases, graphs, 1, settings)
    for name, (growth, per_row) in found.items():
        assert growth < OBJECTS, name
        # SciPy's product makes a matrix, and so do optimizer steps in NumPy of what has n rows.
        if "scipy" not in name and name != "graphblas, trained":
            assert per_row < PER_ROW, name


@pytest.mark.parametrize("nranks", [2, 4])
def test_schemes_allocate_nothing_in_an_epoch(run_cases, graphs, nranks):
    some = list(SCHEMES.items())[nranks // 4 :: 2]
    found = measured(run_cases, graphs, nranks, dict(some))
    for name, (growth, per_row) in found.items():
        assert growth < OBJECTS, name
        assert per_row < PER_ROW, name
