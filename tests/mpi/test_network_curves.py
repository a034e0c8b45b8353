"""Every network on every scheme and kernel that runs it: the curve of the serial oracle.

One launch for each number of ranks, one test for each network, scheme and kernel. The graph is
directed, with weights, self-loops and isolated vertices; parts are uneven, and one is empty.
One, two and four ranks run every network with every scheme. On three, and on seven, which are more
than a layer has columns, each network has one scheme that keeps rows whole and one that does not,
in turn.
"""

import functools
from itertools import product

import numpy as np
import pytest
from networks import NETWORKS, VARIANTS, WHOLE_ROWS, settings_of
from words import sets

from gcnmpi.options.config import load_config
from gcnmpi.proof import oracle
from partition.graph.store import open_graph

RANKS = (1, 2, 3, 4, 7)
KERNELS = ("native", "graphblas", "scipy")
EPOCHS = 6
COMMON = ("dtype=float64", f"train.epochs={EPOCHS}", "train.eval_every=3", "train.lr=0.02")
GRIDS = {
    "summa": {1: "1x1", 2: "2x1", 3: "1x3", 4: "2x2", 7: "7x1"},
    "split3d": {1: "1x1x1", 2: "1x1x2", 3: "3x1x1", 4: "1x2x2", 7: "1x1x7"},
    "tensor3d": {1: "1x1x1", 2: "1x2x1", 3: "3x1x1", 4: "2x1x2", 7: "1x1x7"},
}
CHAINS = ("appnp", "appnp-row", "sgc", "sign")
"""Networks of several products one after the other."""


def cases(nranks):
    """Name → (network, partition or None, settings)."""
    found = {}
    parts = None if nranks == 1 else f"uneven-{nranks}"
    # Two copies where that is possible, else as many as there are ranks.
    copies = 2 if nranks % 2 == 0 else nranks
    some = nranks // copies
    sharing = None if some == 1 else f"uneven-{some}"
    schemes = {
        "p2p": (parts, ["scheme.name=p2p"]),
        "bcast": (parts, ["scheme.name=bcast"]),
        "replicated": (sharing, ["scheme.name=replicated", f"scheme.replication={copies}"]),
    }
    few = nranks in (3, 7)
    for (i, network), (j, scheme) in product(enumerate(NETWORKS), enumerate(schemes)):
        partition, settings = schemes[scheme]
        # Kernels do not know of ranks: each network has all on two, else one for each scheme.
        turn = (i + j + RANKS.index(nranks)) % len(KERNELS)
        for kernel in KERNELS if nranks == 2 and scheme == "p2p" else [KERNELS[turn]]:
            more = [*settings, f"kernel={kernel}"]
            if not few or (i + nranks) % len(schemes) == j:
                found[f"{network}-{scheme}-{kernel}"] = (network, partition, more)
    for network in VARIANTS if nranks in (1, 3, 4) else ():
        found[f"{network}-p2p"] = (network, parts, ["scheme.name=p2p"])
    if nranks == 2:
        for network in (*NETWORKS, *VARIANTS):
            found[f"{network}-float32"] = (network, parts, ["dtype=float32"])
    dense = ["scheme.name=replicated", "scheme.sparse=false", f"scheme.replication={copies}"]
    found["gat-replicated-dense"] = ("gat", sharing, dense)
    found["sage-max-shared"] = ("sage-max", parts, ["scheme.transport=shared"])
    for network in (*NETWORKS, *VARIANTS):
        if network not in WHOLE_ROWS and (nranks == 4 or network in CHAINS):
            found[f"{network}-columns"] = (network, parts, ["scheme.name=columns"])
    on_grids = (*NETWORKS, *VARIANTS) if nranks == 4 else NETWORKS
    for i, network in enumerate(name for name in on_grids if name not in WHOLE_ROWS):
        for j, (scheme, grids) in enumerate(GRIDS.items()):
            settings = [f"scheme.name={scheme}", f"scheme.grid={grids[nranks]}"]
            if (i + nranks) % len(GRIDS) == j or not (few or network in VARIANTS):
                found[f"{network}-{scheme}"] = (network, None, settings)
    return found


@functools.cache
def expected(path, network):
    """The losses of the oracle, and what it counts right."""
    config = load_config(None, (*COMMON, *settings_of(network)))
    curve = oracle.train(open_graph(path).graph, "in", config, EPOCHS)
    return np.array(curve.losses)


def wanted(nranks, schemes_folder):
    path = schemes_folder / "directed.graph"
    return {
        name: (path, partition, [*COMMON, *settings_of(network), *settings])
        for name, (network, partition, settings) in cases(nranks).items()
    }


@pytest.mark.parametrize(
    ("nranks", "name"), [(nranks, name) for nranks in RANKS for name in cases(nranks)]
)
def test_every_network_has_one_curve(results, schemes_folder, nranks, name):
    network, *_ = cases(nranks)[name]
    record = results(nranks)[name]
    losses = expected(schemes_folder / "directed.graph", network)
    assert losses[1:].min() < losses[0]
    np.testing.assert_allclose(record["losses"], losses, rtol=1e-3 if "float32" in name else 1e-10)
    for counted, predicted in record["traffic"]:
        assert counted == predicted


@pytest.mark.parametrize("nranks", RANKS[:4])
def test_rows_in_blocks_give_the_same_curves(trained, schemes_folder, nranks):
    """Of 61 vertices, on a rank that has 6 or none too."""
    path = schemes_folder / "directed.graph"
    parts = None if nranks == 1 else f"uneven-{nranks}"
    names = (*NETWORKS, *VARIANTS)
    wanted = {n: (path, parts, [*COMMON, "scheme.name=p2p", *settings_of(n)]) for n in names}
    if nranks == 4:
        copies = ["scheme.name=replicated", "scheme.replication=2"]
        wanted["copies"] = (path, "uneven-2", [*COMMON, *copies, *settings_of("gcn")])
    for name, record in trained(nranks, wanted, rows_at_once=4).items():
        losses = expected(path, "gcn" if name == "copies" else name)
        np.testing.assert_allclose(record["losses"], losses, rtol=1e-10, err_msg=name)
        for counted, predicted in record["traffic"]:
            assert counted == predicted


def test_what_a_scheme_cannot_run_is_refused_before_loading(hear_mistakes, schemes_folder):
    words, says = ["train", schemes_folder / "directed.graph"], "p2p, bcast or replicated"
    of_schemes = [
        [*words, *sets(f"scheme.name={scheme}", "model.name=gat")] for scheme in (*GRIDS, "columns")
    ]
    hear_mistakes(2, [(line, (says, "whole rows of neighbours")) for line in of_schemes])
