"""Every network on every scheme and kernel that runs it: the curve of the serial oracle.

The cases are a covering array of networks, schemes, kernels, numbers of ranks and sizes of blocks
of rows; by day, half of the schemes run a variant of a network. One launch for each number of
ranks, one test for each case. A file of weights names its network, and infer computes its logits
on other ranks. The graph is directed, with weights, self-loops and isolated vertices; parts are
uneven, and one is empty from three ranks on.
"""

import functools

import axes
import numpy as np
import pytest
from words import line, sets

from gcnmpi.options.config import load_config
from gcnmpi.proof import oracle
from gcnmpi.run.weights import as_trained, read_weights
from partition.graph.store import open_graph

EPOCHS = 5
COMMON = ("dtype=float64", f"train.epochs={EPOCHS}", "train.eval_every=3", "train.lr=0.02")
EVERY = {**axes.NETWORKS, **axes.VARIANTS}
CUT_ROWS = (*axes.GRIDS, "columns")
BLOCKS = ({}, {"rows_at_once": 4})  # of 61 vertices, on a rank that has 6 or none too


def is_run(network, scheme, nranks, *_):
    """Whether the scheme has the rows that the network looks at, and so many ranks."""
    there = [count for count, _ in axes.places(scheme)]
    turn = [*EVERY].index(network) + [*axes.SCHEMES].index(scheme)
    today = axes.ALL or network in axes.NETWORKS or turn % 2 == 0
    return nranks in there and today and not (network in axes.WHOLE_ROWS and scheme in CUT_ROWS)


AXES = EVERY, axes.SCHEMES, axes.RANKS, axes.KERNELS, BLOCKS
COVERING = axes.covering(*map(list, AXES), allowed=is_run)


@functools.cache
def cases(nranks):
    """Name → (network, partition or None, settings, further keys) of a number of ranks."""
    found = {}
    for network, scheme, count, kernel, blocks in COVERING:
        if count == nranks:
            _, place = [place for place in axes.places(scheme) if place[0] == nranks][-1]
            settings = [f"scheme.name={scheme}", *place, f"kernel={kernel}"]
            name = "-".join([network, scheme, kernel, *blocks])
            found[name] = network, partition_of(nranks, scheme, place), settings, blocks
    if nranks == 2:
        for i, network in enumerate(EVERY if axes.ALL else [*EVERY][::2]):
            single = ["dtype=float32", f"kernel={axes.KERNELS[i % len(axes.KERNELS)]}"]
            found[f"{network}-float32"] = network, "uneven-2", single, {}
    return found


def partition_of(nranks, scheme, place):
    copies = int(place[0].partition("=")[2]) if scheme == "replicated" else 1
    return None if nranks == copies or scheme in axes.GRIDS else f"uneven-{nranks // copies}"


@functools.cache
def expected(path, network):
    """The losses of the oracle."""
    config = load_config(None, (*COMMON, *axes.settings_of(network)))
    return np.array(
        oracle.train(oracle.Problem(open_graph(path).graph, "in", config), EPOCHS).losses
    )


def wanted(nranks, schemes_folder):
    path = schemes_folder / "directed.graph"
    return {
        name: (path, partition, [*COMMON, *axes.settings_of(network), *settings], more)
        for name, (network, partition, settings, more) in cases(nranks).items()
    }


@pytest.mark.parametrize(
    ("nranks", "name"), [(nranks, name) for nranks in axes.RANKS for name in cases(nranks)]
)
def test_every_network_has_one_curve(results, schemes_folder, nranks, name):
    network, *_ = cases(nranks)[name]
    record = results(nranks)[name]
    losses = expected(schemes_folder / "directed.graph", network)
    assert losses[1:].min() < losses[0]
    np.testing.assert_allclose(record["losses"], losses, rtol=1e-3 if "float32" in name else 1e-10)
    for counted, predicted in record["traffic"]:
        assert counted == predicted


def test_what_a_scheme_cannot_run_is_refused_before_loading(hear_mistakes, schemes_folder):
    words, says = ["train", schemes_folder / "directed.graph"], "p2p, bcast or replicated"
    of_schemes = [[*words, *sets(f"scheme.name={scheme}", "model.name=gat")] for scheme in CUT_ROWS]
    hear_mistakes(2, [(words, (says, "whole rows of neighbours")) for words in of_schemes])


WEIGHTS = [*axes.NETWORKS, "gcn-jk-cat", "gin-eps", "gat-mean", "sage-sum"]


@pytest.fixture(scope="module")
def inferred(schemes_folder, succeed, tmp_path_factory):
    """Trained on 2 ranks, inferred on 3, without a word on the network."""
    root, lines = tmp_path_factory.mktemp("weights"), {2: [], 3: []}
    for name in WEIGHTS:
        settings = ("dtype=float64", "train.epochs=2", *axes.settings_of(name))
        file = root / f"{name}.npz"
        for nranks, verb, options in (
            (2, "train", {"settings": settings, "out": root / name, "save_weights": file}),
            (3, "infer", {"settings": settings[:1], "out": root / f"{name}.npy", "weights": file}),
        ):
            words = schemes_folder / "directed.graph", "--partition", f"uneven-{nranks}"
            lines[nranks].append(line(verb, *words, **options))
    for nranks, some in lines.items():
        succeed(nranks, *some)
    return root


@pytest.mark.parametrize("name", WEIGHTS)
def test_logits_of_other_ranks_are_those_of_the_oracle(name, schemes_folder, inferred):
    found = read_weights(inferred / f"{name}.npz", load_config())
    config = as_trained(found, load_config(None, ["dtype=float64"]), (), "in")
    assert config.model.name == name.split("-")[0]
    graph = open_graph(schemes_folder / "directed.graph").graph
    expected = oracle.Problem(graph, "in", config).logits(found.parameters)
    logits = np.load(inferred / f"{name}.npy")
    np.testing.assert_allclose(logits, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())
