"""Every scheme on every number of ranks that its grid allows, against the serial run.

One launch a number of ranks; what is run there, ``cases_SCHEME.py`` say: a list of (graph,
partition or None, settings) for a number of ranks. Graphs and partitions are those of
``make_folder``.
"""

import importlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from words import epochs, latest

from partition.graph.metrics import measure, measure_mixed
from partition.graph.store import Partition, write_graph, write_partition
from partition.importing.assemble import build_graph
from partition.importing.readers import Source

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("cases_*.py"))
QUICK = [pytest.param(nranks, marks=pytest.mark.quick) for nranks in (1, 2)]
RANKS = (*QUICK, 3, 4, 6, 8, 9, 12, 16)
NUMBERS = {"loss curve", "first gradient", "final weights", "logits", "M·x", "Mᵀ·y"}
NUMBERS |= {"⟨M·x, y⟩ = ⟨x, Mᵀ·y⟩", "training bytes", "training received", "evaluation received"}


def make_graph(kind):
    """61 vertices of which some are isolated; weights of both directions differ if directed.

    "hubs": some vertices have arcs to half of the others, other ones from half of them; and
    self-loops.
    """
    rng = np.random.default_rng(3)
    n, narcs, symmetric = 61, 260, kind == "symmetric"
    source, target = rng.integers(0, n - 7, (2, narcs))
    if kind == "hubs":
        near, far = np.repeat([2, 3, 40], 27), np.tile(np.arange(0, n - 7, 2), 3)
        loops = np.arange(0, n, 5)
        source = np.concatenate([source[:60], near, far, loops])
        target = np.concatenate([target[:60], far, near + 6, loops])
        narcs = len(source)
    weights = rng.uniform(0.2, 1.5, narcs)
    if symmetric:
        source, target = np.append(source, target), np.append(target, source)
        weights = np.append(weights, weights)
    labels = rng.integers(-1, 5, n).astype(np.int32)
    labels[:5] = range(5)
    masks = {name: rng.random(n) < 0.5 for name in ("train", "val", "test")}
    masks["train"][:2] = True
    features = rng.standard_normal((n, 7)).astype(np.float32)
    source = Source(n, source, target, weights, features, labels, {} if symmetric else masks)
    return build_graph(source)[0]


def uneven_parts(n, k):
    """Uneven, in no order, and part 1 is empty where there are three or more."""
    shares = np.arange(k, 0, -1.0)
    if k > 2:
        shares[1] = 0
    return np.random.default_rng(k).choice(k, n, p=shares / shares.sum()).astype(np.int32)


def make_folder(folder):
    """Graphs of three kinds, with partitions uneven-K for K = 1 … 16."""
    for kind in ("directed", "symmetric", "hubs"):
        graph, path = make_graph(kind), folder / f"{kind}.graph"
        identity = write_graph(path, graph, source={}).id
        for k in range(1, 17):
            parts = uneven_parts(graph.n, k)
            metrics = {d: asdict(measure(graph, parts, k, d)) for d in ("in", "out")}
            mixed = {d: asdict(measure_mixed(graph, parts, k, d)) for d in ("in", "out")}
            name = f"uneven-{k}"
            partition = Partition(
                name, parts, k, identity, "test", "numpy", "1", "in", metrics=metrics, mixed=mixed
            )
            write_partition(path, partition)
    return folder


@pytest.mark.parametrize("nranks", RANKS)
def test_schemes_equal_the_serial_run(mpirun, schemes_folder, tmp_path, nranks):
    check_schemes(mpirun, schemes_folder, tmp_path, nranks)


def test_p2p_on_seven_ranks(mpirun, schemes_folder, tmp_path):
    check_schemes(mpirun, schemes_folder, tmp_path, 7, modules=["cases_p2p"])


def check_schemes(
    mpirun, schemes_folder, tmp_path, nranks, common=(), env=None, most=None, modules=MODULES
):
    """All cases of a number of ranks, each with the common settings after its own.

    Or of each scheme so many at most, or of these modules.
    """
    cases = []
    for name in modules:
        found = list(importlib.import_module(name).cases(nranks))
        for graph, partition, settings in found[:most]:
            path = str(schemes_folder / f"{graph}.graph")
            settings = latest(f"train.epochs={epochs(nranks)}", *settings, *common)
            case = {"graph": path, "partition": partition, "settings": settings, "fault": None}
            cases.append(case | {"directions": 1})
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    done = mpirun(nranks, "verify_cases.py", tmp_path / "cases.json", timeout=600, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert len(results) == len(cases)
    for case, result in zip(cases, results, strict=True):
        assert (result["code"], result["missed"]) == (0, []), case
        assert set(result["checks"]) >= NUMBERS
